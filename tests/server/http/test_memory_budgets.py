"""server.http.memory_budgets: shared content is counted once, and only while it is held."""

from fairlead.server.http.memory_budgets import MemoryBudget, MemoryLimits, Reservation, ReservationHandle

LIMITS = MemoryLimits(connection=1000, user=2000, total=3000)
CONTENT = b"x" * 900


def build_reservation(user: str, client: str, content: bytes = b"", cost: int = 100) -> Reservation:
    return Reservation(user, client, cost, content, 0.0, 0.0)


def test_shared_content_counts_once_in_each_account() -> None:
    budget = MemoryBudget(LIMITS)
    handles = [
        ReservationHandle(budget, build_reservation("ann", "a:1", CONTENT)),
        ReservationHandle(budget, build_reservation("bob", "b:1", CONTENT)),
    ]
    assert budget.total.size == 900 + 2 * 100
    handles[0].release()
    assert budget.total.size == 900 + 100
    handles[1].release()
    assert budget.total.size == 0


def test_a_reached_limit_is_reported_only_to_the_clients_that_it_concerns() -> None:
    budget = MemoryBudget(LIMITS)
    first = ReservationHandle(budget, build_reservation("ann", "a:1", CONTENT))
    assert "one connection" in budget.find_reached_limit("ann", "a:1")
    assert budget.find_reached_limit("ann", "a:2") == budget.find_reached_limit("bob", "b:1") == ""
    second = ReservationHandle(budget, build_reservation("ann", "a:2", cost=1000))
    assert "one user" in budget.find_reached_limit("ann", "a:3")
    assert budget.find_reached_limit("bob", "b:1") == ""
    third = ReservationHandle(budget, build_reservation("bob", "b:1", cost=1000))
    assert "all users" in budget.find_reached_limit("eve", "e:1")
    for handle in (first, second, third):
        handle.release()
    assert budget.find_reached_limit("ann", "a:1") == ""


def test_a_handle_without_references_releases_its_reservation() -> None:
    budget = MemoryBudget(LIMITS)
    handle = ReservationHandle(budget, build_reservation("ann", "a:1", CONTENT))
    assert budget.total.size
    del handle
    assert not budget.total.size


def test_releasing_twice_counts_once() -> None:
    budget = MemoryBudget(LIMITS)
    other, handle = (
        ReservationHandle(budget, build_reservation("ann", "a:1")),
        ReservationHandle(budget, build_reservation("ann", "a:1")),
    )
    handle.release()
    handle.release()
    assert budget.total.size == other.reservation.cost


def test_replaced_content_is_counted_instead_of_the_original() -> None:
    budget = MemoryBudget(LIMITS)
    handle = ReservationHandle(budget, build_reservation("ann", "a:1", CONTENT))
    handle.replace_content(b"packed")
    assert budget.total.size == 100 + len(b"packed")


def test_the_oldest_reservation_of_the_largest_user_is_found() -> None:
    budget = MemoryBudget(LIMITS)
    assert budget.find_oldest_of_largest_user() is None
    handles = [
        ReservationHandle(budget, build_reservation("ann", "a:1", cost=500)),
        ReservationHandle(budget, build_reservation("bob", "b:1", cost=300)),
        ReservationHandle(budget, build_reservation("bob", "b:2", cost=300)),
    ]
    assert budget.find_oldest_of_largest_user() is handles[1].reservation
