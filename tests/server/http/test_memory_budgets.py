"""What is held in memory is counted once where it is shared, and not any longer than it is held."""

from fairlead.server.http.memory_budgets import MemoryBudget, MemoryLimits, Reservation, ReservationHandle

LIMITS = MemoryLimits(connection=1000, user=2000, total=3000)
CONTENT = b"x" * 900


def held(user: str, client: str, content: bytes = b"", cost: int = 100) -> Reservation:
    return Reservation(user, client, cost, content, 0.0, 0.0)


def test_content_that_many_share_counts_once_in_each_account() -> None:
    budget = MemoryBudget(LIMITS)
    holdings = [
        ReservationHandle(budget, held("ann", "a:1", CONTENT)),
        ReservationHandle(budget, held("bob", "b:1", CONTENT)),
    ]
    assert budget.total.size == 900 + 2 * 100
    holdings[0].release()
    assert budget.total.size == 900 + 100
    holdings[1].release()
    assert budget.total.size == 0


def test_a_limit_that_is_reached_is_named_to_whom_it_concerns() -> None:
    budget = MemoryBudget(LIMITS)
    first = ReservationHandle(budget, held("ann", "a:1", CONTENT))
    assert "one connection" in budget.find_reached_limit("ann", "a:1")
    assert budget.find_reached_limit("ann", "a:2") == budget.find_reached_limit("bob", "b:1") == ""
    second = ReservationHandle(budget, held("ann", "a:2", cost=1000))
    assert "one user" in budget.find_reached_limit("ann", "a:3")
    assert budget.find_reached_limit("bob", "b:1") == ""
    third = ReservationHandle(budget, held("bob", "b:1", cost=1000))
    assert "all users" in budget.find_reached_limit("eve", "e:1")
    for each in (first, second, third):
        each.release()
    assert budget.find_reached_limit("ann", "a:1") == ""


def test_what_nobody_refers_to_any_more_is_not_held_for_ever() -> None:
    budget = MemoryBudget(LIMITS)
    holding = ReservationHandle(budget, held("ann", "a:1", CONTENT))
    assert budget.total.size
    del holding
    assert not budget.total.size


def test_releasing_twice_counts_once() -> None:
    budget = MemoryBudget(LIMITS)
    kept, holding = ReservationHandle(budget, held("ann", "a:1")), ReservationHandle(budget, held("ann", "a:1"))
    holding.release()
    holding.release()
    assert budget.total.size == kept.reservation.cost


def test_another_form_of_a_content_takes_its_place() -> None:
    budget = MemoryBudget(LIMITS)
    holding = ReservationHandle(budget, held("ann", "a:1", CONTENT))
    holding.replace_content(b"packed")
    assert budget.total.size == 100 + len(b"packed")


def test_the_oldest_of_the_user_who_holds_most_gives_way_first() -> None:
    budget = MemoryBudget(LIMITS)
    assert budget.find_oldest_of_largest_user() is None
    holdings = [
        ReservationHandle(budget, held("ann", "a:1", cost=500)),
        ReservationHandle(budget, held("bob", "b:1", cost=300)),
        ReservationHandle(budget, held("bob", "b:2", cost=300)),
    ]
    assert budget.find_oldest_of_largest_user() is holdings[1].reservation
