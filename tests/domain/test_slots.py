"""How the slots of a worker are shared."""

from outcrop.domain.slots import INITIAL_SLOTS, MAX_SLOTS, SLOW_SECONDS, DeliverySlots


def fill(slots: DeliverySlots, account: int, rounds: int = 10) -> int:
    """Take slots until the account may take no more; return their number."""
    taken = 0
    for _ in range(rounds):
        for _ in range(slots.share_free_slots([account]).get(account, 0)):
            slots.take(account)
            taken += 1
    return taken


def test_free_slots_are_shared_evenly_and_never_more_than_there_are() -> None:
    assert DeliverySlots(400).share_free_slots([]) == {}
    assert DeliverySlots(400).share_free_slots([1]) == {1: INITIAL_SLOTS}
    assert DeliverySlots(3).share_free_slots([1, 2, 3]) == {1: 1, 2: 1, 3: 1}
    assert DeliverySlots(3).share_free_slots([1, 2, 3, 4]) == {1: 1, 2: 1, 3: 1}
    assert sum(DeliverySlots(40).share_free_slots(range(1000)).values()) == 40
    assert sum(DeliverySlots(40).share_free_slots([1, 2]).values()) <= 40


def test_no_slots_are_shared_when_all_are_used() -> None:
    slots = DeliverySlots(2)
    for account in (1, 2):
        slots.take(account)
    assert slots.free == 0
    assert slots.share_free_slots([1, 2, 3]) == {}
    slots.release(1, 0.1)
    assert slots.share_free_slots([1, 2, 3]) == {1: 1}, (
        "what account 2 holds is all it gets while so little is free"
    )


def test_who_answers_quickly_gets_more_and_who_hangs_ever_less() -> None:
    slots = DeliverySlots(400)
    for _ in range(100):
        slots.take(1)
        slots.release(1, 0.1)
    assert slots.share_free_slots([1]) == {1: MAX_SLOTS}
    for expected in (16, 8, 4, 2, 1, 1):
        slots.take(1)
        slots.release(1, SLOW_SECONDS + 1)
        assert slots.share_free_slots([1]) == {1: expected}


def test_however_many_receivers_hang_there_is_room_for_the_next_account() -> None:
    slots = DeliverySlots(400)
    held = [fill(slots, account) for account in range(60)]
    assert held[0] == INITIAL_SLOTS
    assert slots.free > 0
    for _ in range(5):  # they time out, and try again
        for account, count in enumerate(held):
            for _ in range(count):
                slots.release(account, 10.0)
        held = [fill(slots, account) for account in range(60)]
    assert held == [1] * 60
    assert slots.share_free_slots([1000]) == {1000: INITIAL_SLOTS}
