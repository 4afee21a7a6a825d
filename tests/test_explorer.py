"""The frame of all explorers: when it draws, and where."""

import asyncio
import threading

import ipywidgets
import pytest

from paperlib.teaching.widgets import explorer
from paperlib.teaching.widgets.explorer import Explorer, View


@pytest.fixture
def slider():
    return ipywidgets.IntSlider()


def test_moves_that_come_in_another_thread_are_drawn_in_that_of_the_cell(slider):
    drawn = []

    def draw():
        drawn.append((threading.current_thread(), slider.value))
        return View(f"at {slider.value}")

    async def cell():
        frame = Explorer([[slider]], draw)
        for value in (1, 2, 3):
            await asyncio.to_thread(setattr, slider, "value", value)
        while frame.screen.words != "at 3":
            await asyncio.sleep(explorer.PAUSE)

    asyncio.run(asyncio.wait_for(cell(), 60))
    assert {thread for thread, _ in drawn} == {threading.main_thread()}
    assert drawn[0][1] == 0 and drawn[-1][1] == 3


def test_a_move_that_comes_while_another_is_drawn_is_drawn_too(slider):
    late = []

    def draw():
        value = slider.value
        if value == 1 and not late:
            late.append(threading.Thread(target=setattr, args=(slider, "value", 2)))
            late[0].start()
            late[0].join()
        return View(f"at {value}")

    async def cell():
        frame = Explorer([[slider]], draw)
        slider.value = 1
        while frame.screen.words != "at 2":
            await asyncio.sleep(explorer.PAUSE)

    asyncio.run(asyncio.wait_for(cell(), 60))


def test_a_refusal_stands_above_the_last_view_until_there_is_another(slider):
    def draw():
        if slider.value == 1:
            raise ValueError("1 is impossible")
        return View(f"at {slider.value}", code=f"f({slider.value})")

    frame = Explorer([[slider]], draw)
    slider.value = 1
    assert (frame.screen.error, frame.screen.words, frame.screen.code) == ("1 is impossible", "at 0", "f(0)")
    slider.value = 2
    assert (frame.screen.error, frame.screen.words, frame.screen.number) == ("", "at 2", 3)
