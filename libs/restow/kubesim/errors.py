"""Errors of the API, worded as a kube-apiserver words them, and their metav1.Status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Cause = dict[str, str]


class ApiError(Exception):
    """An answer that is not a success; rendered as a metav1.Status with `code`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers
        self.continue_token = ""

    def status(self) -> dict[str, Any]:
        """The metav1.Status of this error."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


def qualified(group: str, plural: str) -> str:
    """`deployments.apps`, or `pods` for the core group."""
    return f"{plural}.{group}" if group else plural


def details_of(group: str, kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    """StatusDetails without its empty fields."""
    fields = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in fields.items() if value not in ("", None)}


def not_found(resource: Any, name: str) -> ApiError:
    text = f'{qualified(resource.group, resource.plural)} "{name}" not found'
    return ApiError(404, "NotFound", text, details_of(resource.group, resource.plural, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Any, name: str) -> ApiError:
    text = f'{qualified(resource.group, resource.plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, details_of(resource.group, resource.plural, name))


def conflict(resource: Any, name: str, why: str, *, noun: str | None = None) -> ApiError:
    """409 Conflict. `noun` replaces the plural (delete preconditions name the kind)."""
    noun = noun or resource.plural
    text = f'Operation cannot be fulfilled on {qualified(resource.group, noun)} "{name}": {why}'
    return ApiError(409, "Conflict", text, details_of(resource.group, noun, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(resource: Any, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    text = f'{qualified(resource.group, resource.plural)} "{name}" is forbidden: {why}'
    more = {"causes": list(causes)} if causes else {}
    return ApiError(403, "Forbidden", text, details_of(resource.group, resource.plural, name, **more))


def method_not_allowed(resource: Any) -> ApiError:
    return ApiError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details_of(resource.group, resource.plural) if resource is not None else {},
    )


def unsupported_media(message: str) -> ApiError:
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    text = "406: Not Acceptable\n\nAvailable representations: " + ", ".join(accepted)
    return ApiError(406, "NotAcceptable", text)


def not_implemented(what: str) -> ApiError:
    return ApiError(501, "NotImplemented", f"kubesim does not implement {what}")


def gone(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def invalid(resource: Any, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with one cause per field; the message lists them as field.ErrorList does."""
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    text = f'{kind} "{name}" is invalid: {joined}'
    details = details_of(resource.group, resource.kind, name, causes=list(causes))
    return ApiError(422, "Invalid", text, details)


def unknown_dry_run(verb: str, values: Sequence[str]) -> ApiError:
    """Of the options of a Create, Update, Patch or Delete."""
    listed = ", ".join(f'"{value}"' for value in values)
    text = f'Unsupported value: [{listed}]: supported values: "All"'
    cause = {"reason": "FieldValueNotSupported", "field": "dryRun", "message": text}
    details = {"group": "meta.k8s.io", "kind": f"{verb}Options", "causes": [cause]}
    return ApiError(422, "Invalid", f'{verb}Options.meta.k8s.io "" is invalid: dryRun: {text}', details)
