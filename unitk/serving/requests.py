"""Requests, whose fields are checked before any text is encoded.

A request is an object with the names of the Python API, `{"texts": ["..."], "beam": 3}`. It is
checked completely before it enters the queue. It cannot name a file: options that are files are not
accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from unitk.decoding.config import GenerateConfig, length
from unitk.decoding.files.defaults import naming_defaults
from unitk.decoding.generator import Generator
from unitk.errors import UsageError, require, show_value
from unitk.foreign import parse_json
from unitk.options.config import resolve
from unitk.options.settings import Origin, Settings, argument_text
from unitk.registry import nearest
from unitk.serving.batching import Job
from unitk.serving.config import Limits
from unitk.serving.route import Gone, abilities, answering_routes, routes

INPUTS = ("source", "sources", "input", "inputs", "prompt")
"""Names that other servers have for the first field."""
DEPTH, LONGEST = 8, 400
"""The deepest nesting of a request; digits of an integer that is read as such."""


@dataclass(frozen=True)
class Service:
    """A model with each of its tasks, the default one first, under a `name`."""

    name: str
    tasks: Mapping[str, Generator]
    limits: Limits
    card: Mapping[str, Any] = field(default_factory=dict)
    """A description of the model for people: title, parameters and others."""
    created: int = 0
    """When its checkpoint was written, in seconds since 1970."""

    def describe(self) -> dict[str, Any]:
        """The abilities of the model, for the page and other clients."""
        tasks = {name: abilities(generator) for name, generator in self.tasks.items()}
        limits = {limit.name: getattr(self.limits, limit.name) for limit in fields(Limits)}
        return {"model": self.name, "about": dict(self.card), "tasks": tasks, "limits": limits}

    def job(
        self,
        verb: str,
        body: object,
        on_text: Callable[[Any], None] | None = None,
        gone: Gone = lambda: False,
    ) -> Job:
        """Check a request and make its job; `on_text` is called with the text so far of a stream.

        Raises UsageError and DataError, which name the field, and Abandoned when the client has
        `gone` while its texts are read.
        """
        route = routes()[verb]
        if not isinstance(body, dict):
            fault = f"must be an object with the field {route.takes[0]!r}, got {show_value(body)}"
            raise UsageError(f"the request {fault}")
        check_depth(body)
        body = {**route.translate(body), "model": self.name}
        options = route.options()
        for name in body:
            if name not in (names := ["model", "task", *route.takes, *options]):
                near = f"; use {route.takes[0]}" if name in INPUTS else nearest(name, names)
                raise UsageError(f"/{verb} has no field {name!r}{near} (known: {', '.join(names)})")
        task = self._task(verb, body.get("task"))
        for option in fields(route.Options):
            single = not isinstance(body.get(option.name), list)
            several = isinstance(option.default, tuple)
            require(single or several, f"{option.name} must be one value, got a list")
        used = route.fill_defaults(self.tasks[task].defaults, body)
        # of what a request leaves out, the server grants as much as it allows
        lowered = self._lower_limits(route.Options, used)
        used = {key: value for key, value in used.items() if key not in lowered}
        values = used | lowered | {key: body[key] for key in options if key in body}
        # through the grammar of the command line, which knows types and choices
        texts = {key: argument_text(value, key) for key, value in values.items()}
        with naming_defaults(used):
            config = resolve(route.Options, Settings.of_texts(texts, Origin.FLAG)).main
            if "max_tokens" in {option.name for option in fields(route.Options)}:
                config = replace(config, max_tokens=self.limits.max_tokens)
            # before any text is read: what is asked for may not be affordable
            self._check(config)
        return route(self.tasks[task], body, config, self.limits, gone, on_text).job()

    def _task(self, verb: str, task: object) -> str:
        """The task that answers: the one requested, or the first that supports the verb."""
        route = routes()[verb]
        fitting = [name for name, generator in self.tasks.items() if route.fits(generator)]
        if task is None and fitting:
            fitting.sort(key=lambda name: not route.preferred(self.tasks[name]))  # stable
            return fitting[0]
        if task is not None and (not isinstance(task, str) or task not in self.tasks):
            raise UsageError(f"task must be one of {', '.join(self.tasks)}, got {task!r}")
        name = str(task or next(iter(self.tasks)))
        if name in fitting:
            return name
        can = f"{self.name} with task {name} can {', '.join(answering_routes(self.tasks[name]))}"
        more = f"; task {', '.join(fitting)} can {verb}" if fitting else ""
        needs = f"/{verb} is for {route.needs}" if route.needs else f"/{verb}"
        raise UsageError(f"{needs}: {can}{more}")

    def _lower_limits(self, kind: type, own: Mapping[str, Any]) -> dict[str, Any]:
        """The options whose value, that of `own` or the default, is above a limit, at the limit."""
        limits = {"beam": self.limits.max_beam, "max_len": self.limits.max_output}
        options = limits.items() if issubclass(kind, GenerateConfig) else ()
        value = {name: own.get(name, getattr(GenerateConfig, name)) for name, _ in options}
        return {name: limit for name, limit in options if length(value[name], 0) > limit}

    def _check(self, config: Any) -> None:
        limits = self.limits
        for option in fields(config):
            value = getattr(config, option.name)
            # an integer of any size is one in JSON
            require(
                not isinstance(value, int | float) or abs(value) <= 2**53,
                f"{option.name} must be a finite number up to 2**53, got {value}",
            )
        if isinstance(config, GenerateConfig):
            for name in ("beam", "nbest", "best_of"):
                limit = limits.max_beam
                value = getattr(config, name)
                require(value <= limit, f"{name} must be at most {limit}, got {value}")
            require(
                length(config.max_len, 0) <= limits.max_output,
                f"max_len must be at most {limits.max_output}, got {config.max_len}",
            )


class UnknownModel(UsageError):
    """A request for a model that is not served."""


def choose_service(services: Sequence[Service], body: Any) -> Service:
    """The service of the model that a request names, by default the first."""
    if not isinstance(body, dict) or body.get("model") is None:
        return services[0]
    for service in services:
        if service.name == body["model"]:
            return service
    known = ", ".join(service.name for service in services)
    raise UnknownModel(f"model must be one of {known}, got {body['model']!r}")


def parse_request(raw: bytes) -> Any:
    """Parse a request; DataError for what is no JSON, or has two fields of one name."""
    # a number of any length is one; Python would refuse to read it as an integer
    whole = {"parse_int": lambda digits: int(digits) if len(digits) < LONGEST else float(digits)}
    return parse_json(raw, "the request", hooks=whole)


def check_depth(body: Any) -> None:
    """Raise UsageError for lists and objects that are nested more deeply than any field needs."""
    level = [body]
    for _ in range(DEPTH):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for some in inner for value in some if isinstance(value, list | dict)]
        if not level:
            return
    raise UsageError(f"the request is nested too deeply: more than {DEPTH} lists or objects")
