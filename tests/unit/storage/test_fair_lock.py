"""The lock that goes to the thread that has waited longest."""

from __future__ import annotations

import threading
import time

from tests.support import wait_until
from zapdb.storage.fair_lock import FairSemaphore


def test_it_is_handed_over_in_the_order_of_coming() -> None:
    lock, order = FairSemaphore(), []
    assert lock.acquire(0)
    threads = []
    for number in range(5):

        def take(number: int = number) -> None:
            assert lock.acquire(20)
            order.append(number)
            lock.release()

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        wait_until(lambda: len(lock._waiting) == len(threads), "the thread waits")
    lock.release()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    assert lock.acquire(0)


def test_who_gives_up_is_passed_over() -> None:
    lock = FairSemaphore()
    assert lock.acquire(0)
    assert not lock.acquire(0)
    started = time.monotonic()
    assert not lock.acquire(0.05)
    assert time.monotonic() - started >= 0.05
    lock.release()
    assert lock.acquire(0)


def test_only_one_has_it() -> None:
    lock, inside, most = FairSemaphore(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            if lock.acquire(20):
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1
                lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert lock.acquire(0)
