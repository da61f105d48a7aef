"""Pydantic models are parameters and results like dataclasses, with their own validation."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, computed_field

from taskmill import ConfigError, Context, Domain, HistoryRecord, Scheduler, Submission, SubmissionError


class Size(BaseModel):
    width: int = Field(gt=0)
    height: int = Field(gt=0)


class Photo(BaseModel):
    path: Path
    taken_at: datetime
    size: Size | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def name(self) -> str:
        return self.path.name


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    at: datetime
    parts: tuple[int, ...]


class Aliased(BaseModel):
    from_: str = Field(alias="from")


class Login(BaseModel):
    user: str
    password: SecretStr


class Numbers(RootModel[list[int]]):
    pass


NOON = datetime(2030, 5, 6, 12, tzinfo=UTC)
PHOTO = Photo(path=Path("a/b.jpg"), taken_at=NOON, size=Size(width=3, height=4))

KINDS: list[tuple[Any, Any]] = [
    (Photo, PHOTO),
    (Photo | None, None),
    (Photo | None, PHOTO),
    (list[Photo], [PHOTO, Photo(path=Path("c"), taken_at=NOON)]),
    (dict[str, Size], {"a": Size(width=1, height=1)}),
    (tuple[Size, int], (Size(width=1, height=1), 5)),
    (Strict, Strict(at=NOON, parts=(1, 2))),
    (Aliased, Aliased(**{"from": "here"})),
    (Numbers, Numbers([1, 2])),
]


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=[f"{i}-{kind}" for i, (kind, _) in enumerate(KINDS)])
async def test_a_model_is_a_parameter_and_a_result_also_inside_containers(kind: Any, value: Any) -> None:
    received: list[Any] = []
    domain = Domain("models")

    async def take(value: Any) -> Any:
        received.append(value)
        return value

    take.__annotations__ = {"value": kind, "return": kind}
    task = domain.task(take)
    async with Scheduler(domains=[domain]) as scheduler:
        handle = await task.submit(value)
        await scheduler.run_until_idle(timeout=10)
        result = await handle.result()
    assert received == [value]
    assert result == value
    assert type(result) is type(value)


async def test_a_record_shows_a_model_as_plain_json() -> None:
    domain = Domain("models")

    @domain.task(key=True)
    async def develop(ctx: Context, photo: Photo) -> Size:
        assert photo.size is not None
        return photo.size

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await develop.submit(PHOTO)
        same = await develop.submit(PHOTO)
        assert (same.id, same.kind) == (handle.id, "duplicate")
        await scheduler.run_until_idle(timeout=10)
        record = await handle.record()
        assert isinstance(record, HistoryRecord)
        assert record.payload["photo"] == {
            "path": "a/b.jpg",
            "taken_at": "2030-05-06T12:00:00Z",
            "size": {"width": 3, "height": 4},
        }
        assert record.result == {"width": 3, "height": 4}


@pytest.mark.one_engine("no store is opened")
def test_a_value_that_the_model_refuses_is_refused_at_submit_by_the_name_of_its_argument() -> None:
    domain = Domain("models")

    @domain.task
    async def scale(size: Size, others: list[Size]) -> None: ...

    good = Size(width=1, height=1)
    with pytest.raises(SubmissionError, match=r"argument 'size': width: Input should be greater than 0; height: Field"):
        scale.prepare({"width": 0}, [])  # type: ignore[arg-type]
    with pytest.raises(SubmissionError, match=r"argument 'others\[\.\.\.\]|argument 'others\[1\]'"):
        scale.prepare(good, [good, {"width": 5}])  # type: ignore[list-item]
    scale.prepare({"width": 1, "height": 2}, [])  # type: ignore[arg-type]


async def test_a_payload_by_name_is_held_to_the_model() -> None:
    domain = Domain("models")

    @domain.task
    async def scale(size: Size) -> int:
        return size.width

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await scheduler.submit(Submission("models::scale", {"size": {"width": 7, "height": 1}}))
        with pytest.raises(SubmissionError, match="argument 'size'"):
            await scheduler.submit(Submission("models::scale", {"size": {"width": -7, "height": 1}}))
        await scheduler.run_until_idle(timeout=10)
        assert await handle.result() == 7


async def test_a_stored_value_that_the_model_refuses_today_is_a_dead_letter(tmp_path: Path) -> None:
    old, new = Domain("models"), Domain("models")

    @old.task(name="scale")
    async def before(size: dict[str, int]) -> None: ...

    @new.task(name="scale")
    async def after(size: Size) -> None: ...

    async with Scheduler(tmp_path / "tasks.db", domains=[old]):
        handle = await before.submit({"width": 0, "height": 1})
    async with Scheduler(tmp_path / "tasks.db", domains=[new]) as scheduler:
        await scheduler.run_until_idle(timeout=10)
        record = await scheduler.get(handle.id)
    assert isinstance(record, HistoryRecord)
    assert record.state == "dead_letter"
    assert record.error is not None
    assert "argument 'size': width: Input should be greater than 0" in record.error


@pytest.mark.one_engine("no store is opened")
def test_a_model_that_its_json_would_change_is_refused() -> None:
    domain = Domain("models")

    @domain.task
    async def log_in(login: Login) -> None: ...

    with pytest.raises(SubmissionError, match=r"argument 'login'.*another password"):
        log_in.prepare(Login(user="a", password=SecretStr("secret")))


@pytest.mark.one_engine("no store is opened")
def test_a_model_without_an_annotation_is_refused_with_the_annotation_to_use() -> None:
    domain = Domain("models")

    @domain.task
    async def take(value) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(SubmissionError, match="annotate it, for example as value: Size"):
        take.prepare(Size(width=1, height=1))


@pytest.mark.one_engine("no store is opened")
def test_a_class_that_only_resembles_a_model_cannot_be_stored() -> None:
    class Resembling:
        __pydantic_validator__ = None

    domain = Domain("models")

    async def take(value: Any) -> None: ...

    take.__annotations__ = {"value": Resembling}
    with pytest.raises(ConfigError, match="pydantic models"):
        domain.task(take)


@pytest.mark.one_engine("no store is opened")
def test_taskmill_never_imports_pydantic() -> None:
    code = "import sys, taskmill; taskmill.Scheduler(); assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.one_engine("no store is opened")
def test_a_choice_between_models_is_refused_when_the_task_is_defined() -> None:
    domain = Domain("models")

    async def take(value: Size | Photo) -> None: ...

    with pytest.raises(ConfigError, match=r"models::take.*class Choice\(RootModel\[Size \| Photo\]\) and use Choice"):
        domain.task(take)
    take.__annotations__ = {"value": list[Size | str | None]}
    with pytest.raises(ConfigError, match=r"Size \| str \| None, but .* with None only; .*RootModel\[Size \| str\]\)"):
        domain.task(take)
    either = RootModel[Size | Photo]
    take.__annotations__ = {"value": either}
    domain.task(take).prepare(either(Size(width=1, height=1)))  # type: ignore[arg-type]


class Token(BaseModel):
    user: str
    secret: str = Field(default="", exclude=True)


class Counted(BaseModel):
    name: str
    _seen: int = PrivateAttr(0)
    _found: list[int] = PrivateAttr(default_factory=list)
    _lock: object = PrivateAttr(default_factory=object)


class Animal(BaseModel):
    name: str


class Dog(Animal):
    tail: int = 1


class Owner(BaseModel):
    pet: Animal
    token: Token = Token(user="nobody")


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


def _taking(kind: Any) -> Any:
    async def take(value: Any) -> None: ...

    take.__annotations__ = {"value": kind}
    return Domain("models").task(take)


def _counted(**private: Any) -> Counted:
    model = Counted(name="a")
    for name, value in private.items():
        setattr(model, name, value)
    return model


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (Token, Token(user="a", secret="x"), "Token comes back from JSON with another secret"),
        (Owner, Owner(pet=Animal(name="a"), token=Token(user="a", secret="x")), "Owner .* another token"),
        (Owner, Owner(pet=Dog(name="a", tail=2)), "Owner .* another pet"),
        (Counted, _counted(_seen=9), "without its private _seen; pass it separately, or make it a field"),
        (Counted, _counted(_found=[1]), "without its private _found"),
        (Animal, Dog(name="a", tail=2), "a Dog would come back as an Animal.*annotate it as Dog"),
        (Animal | None, Dog(name="a", tail=2), "a Dog would come back as an Animal"),
        (list[Animal], [Animal(name="a"), Dog(name="a")], "a Dog would come back as an Animal"),
    ],
)
def test_a_model_that_would_lose_data_is_refused(kind: Any, value: Any, says: str) -> None:
    with pytest.raises(SubmissionError, match=rf"models::take: argument 'value'.*{says}"):
        _taking(kind).prepare(value)


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Token, Token(user="a")),
        (Owner, Owner(pet=Animal(name="a"))),
        (Counted, _counted()),
        (Dog, Dog(name="a", tail=2)),
        (Animal, {"name": "a"}),
        (Box[int], Box[int](content=1)),
        (Box[int], Box(content=1)),
    ],
)
def test_a_model_that_loses_nothing_is_taken(kind: Any, value: Any) -> None:
    _taking(kind).prepare(value)


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("kind", [BaseModel, BaseModel | None, list[BaseModel]])
def test_the_base_of_all_models_is_refused_when_the_task_is_defined(kind: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"models::take: parameter 'value' has the type BaseModel.*class of the model"
    ):
        _taking(kind)
