"""What etcd's errors mean: for the code that decides what to do, and for people. Called by `client.py` and the rest.

etcd tells its errors apart by their text as much as by their code; its own client does the same. A text that we do not
know is taken for the worse case, an outcome that is not known.
"""

import grpc

from fairlead.storage.contract import Unavailable

Code = grpc.StatusCode


class Gone(Exception):
    """The revision asked for has been compacted in etcd."""


class NotYet(Exception):
    """The revision asked for is still to come."""


class Lost(Exception):
    """No answer, or one that leaves open whether the request was carried out. The text is for people."""


class LoggedOut(Exception):
    """The token is no longer good; nothing was carried out."""


_TEXTS = {
    "required revision has been compacted": Gone,
    "required revision is a future revision": NotYet,
    "invalid auth token": LoggedOut,
    "revision of auth store is old": LoggedOut,
}

_TOO_LARGE = "the change is larger than this etcd takes; start etcd with a larger --max-request-bytes"

_ADVICE = {
    "too many operations": "a change of so many objects at once is more than this etcd takes in one transaction;"
    " start etcd with a larger --max-txn-ops (128 unless told otherwise)",
    "request is too large": _TOO_LARGE,
    "message larger than max": _TOO_LARGE,
    "space exceeded": "etcd's database has reached its quota and refuses writes; compact and defragment it, or raise"
    " --quota-backend-bytes, then clear the alarm with `etcdctl alarm disarm`",
    "corrupt cluster": "etcd has raised the CORRUPT alarm and refuses to work; repair the cluster first",
    "too many requests": "etcd is overloaded and refuses requests; trying later may help",
    "permission denied": "etcd does not let this user at our keys; grant its role readwrite on the prefix",
    "user name is empty": "etcd wants a login; put the user into the store's address",
    "authentication failed": "etcd does not know this user with this password; correct the store's address",
    "authentication is not enabled": "etcd has no logins; remove the user from the store's address",
}


def judge(error: grpc.aio.AioRpcError, what: str) -> Exception:
    """The exception that an RPC's failure is to us; `what` names the etcd that was asked."""
    text = error.details() or ""
    for known, meaning in _TEXTS.items():
        if known in text:
            return meaning(text)
    for known, advice in _ADVICE.items():
        if known in text:
            return Unavailable(f"{what}: {advice}")
    if error.code() is Code.DEADLINE_EXCEEDED:
        return Lost(f"{what} does not answer in time; see whether its members run and have a leader")
    return Lost(f"{what} cannot be reached or cannot answer: {text or error.code().name}")
