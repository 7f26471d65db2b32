"""Values look like frozen dataclasses."""

from __future__ import annotations

import pytest

from reprieve.model.value import Value


class Point(Value):
    x: int
    y: int = 2
    name: str = "p"


class Named(Point):
    size: int = 0
    tags: tuple[str, ...] = ()


def test_fields_are_given_by_place_by_name_or_by_default() -> None:
    assert Point(1) == Point(1, 2, "p") == Point(x=1) == Point(1, name="p")
    assert Point(1, 5).as_dict() == {"x": 1, "y": 5, "name": "p"}
    assert Named(1, 2, "q", 7).as_dict() == {"x": 1, "y": 2, "name": "q", "size": 7, "tags": ()}
    assert Named(1).given() == {"x": 1}


@pytest.mark.parametrize(("args", "names"), [((), {}), ((1, 2, "p", 4), {}), ((1,), {"z": 1}), ((1,), {"x": 1})])
def test_what_does_not_fit_is_refused(args: tuple[object, ...], names: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Point(*args, **names)  # type: ignore[arg-type]


def test_a_value_is_changed_by_making_another() -> None:
    point = Named(1, tags=("a",))
    other = point.replace(y=9, size=3)
    assert (other.x, other.y, other.size, other.tags) == (1, 9, 3, ("a",))
    assert type(other) is Named and point.y == 2
    assert point.replace() == point
    with pytest.raises(TypeError):
        point.replace(z=1)
    with pytest.raises(AttributeError):
        point.x = 3  # type: ignore[misc]


def test_values_of_two_classes_are_never_equal() -> None:
    assert Point(1) != Named(1)
    assert Point(1) != (1, 2, "p")
