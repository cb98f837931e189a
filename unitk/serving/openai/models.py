"""`/v1/models`: the models that are served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unitk.registry import register
from unitk.serving.requests import Service, choose_service
from unitk.serving.route import Listing


@register("route", "v1/models")
class Models(Listing):
    """The names of the models, or one of them."""

    @staticmethod
    def tell(services: Sequence[Service], name: str) -> Any:
        if name:
            return describe_model(choose_service(services, {"model": name}))
        return {"object": "list", "data": [describe_model(service) for service in services]}


def describe_model(service: Service) -> dict[str, Any]:
    """The entry of a model."""
    model = {"id": service.name, "object": "model", "created": service.created}
    return model | {"owned_by": "unitk"}
