"""Selectors as text."""

from __future__ import annotations

from restow.kubesim.objects import Obj


def selector_text(selector: Obj) -> str:
    """A metav1.LabelSelector as `a=b,c in (d,e)`."""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for item in selector.get("matchExpressions") or ():
        key, values = item["key"], ",".join(item.get("values") or ())
        match item["operator"]:
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case _:
                parts.append(f"!{key}")
    return ",".join(parts)
