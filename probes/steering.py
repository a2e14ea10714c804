"""Requests that name an upstream of their own: the provider's key goes where the configuration says, nowhere else."""

import json
from collections.abc import Iterator
from typing import Any

from probes import client
from probes.framing import target_of_bytes
from probes.gateways import PROVIDER_KEY
from probes.lab import Lab, Probe
from probes.target import Target, shares
from probes.upstream import Upstream
from probes.wire import CLOSE, bearer, head, post, sized

STEERING_FIELDS = (
    *(
        "api_base",
        "base_url",
        "api_url",
        "endpoint",
        "azure_endpoint",
        "api_key",
        "custom_llm_provider",
        "extra_headers",
    ),
    *(
        "proxy",
        "vertex_region",
        "api_version",
        "api_type",
        "organization",
        "default_headers",
        "default_query",
        "headers",
    ),
    *("extra_body", "extra_query", "http_client", "timeout", "max_retries", "num_retries", "fallbacks", "model_list"),
    *("deployment_id", "vertex_project", "vertex_location", "vertex_credentials", "mock_response", "user_config"),
    *("aws_bedrock_runtime_endpoint", "aws_sts_endpoint", "aws_region_name", "aws_access_key_id", "aws_role_name"),
    *(
        "azure_ad_token",
        "openai_api_base",
        "custom_host",
        "ssl_verify",
        "input_cost_per_token",
        "output_cost_per_token",
    ),
)
"""Top-level names that client libraries and gateways obey, each of which once let a caller choose where a call goes, as
whom, or what it costs. An upstream may be built on one of them."""

_OUR_HEADERS = {"host", "accept-encoding", "content-length", "content-type", "accept", "user-agent", "authorization"}
_OUR_HEADERS |= {"traceparent"}
"""All that a provider is sent."""


def steering_fields(lab: Lab) -> str:
    """Forty fields, headers and queries that ever chose an upstream: the canary hears nothing, the fields are gone."""
    target, canary = target_of_bytes(lab), lab.upstream()
    url, host = canary.url, canary.url.split("/")[2]
    fields: dict[str, Any] = dict.fromkeys(STEERING_FIELDS, url)
    fields |= {"extra_headers": {"Host": host}, "provider": {"url": url}, "vertex_region": f"{host}#"}
    for name in (*STEERING_FIELDS, "provider"):
        target.gateway.chat(target.key, **{name: fields[name]})
    statuses = [
        target.gateway.chat(target.key, **fields).status,
        target.gateway.chat(target.key, stream=True, **fields).status,
    ]
    lines = dict(_headers(url, host))
    statuses += [target.gateway.ask(target.key, headers=lines).status]
    statuses += [target.gateway.ask(target.key, headers={name: value}).status for name, value in lines.items()]
    for query in (f"api_base={url}&base_url={url}", f"host={host}", f"url={url}#@", f"/../../{host}"):
        statuses += [target.gateway.ask(target.key, path=f"{client.CHAT_PATH}?{query}").status]
    lab.check(set(statuses) <= {200, 400}, f"answered {shares(statuses)}")
    _check_calls(lab, target, host)
    for call in target.upstream.calls:
        passed = {*call.body} & {*STEERING_FIELDS}
        lab.check(not passed, f"the upstream was sent {passed}")
    _check_unheard(lab, canary)
    served = len(target.upstream.calls)
    target.untouched(calls=served)
    return (
        f"{len(fields)} fields, {len(lines)} headers, 4 queries: {served} calls, all to the upstream that is configured"
    )


def _headers(url: str, host: str) -> Iterator[tuple[str, str]]:
    """Headers that choose an upstream somewhere, or that a proxy would believe."""
    yield from (("x-portkey-custom-host", url), ("x-portkey-azure-resource-name", f"{host}#"), ("X-Api-Base", url))
    yield from (("X-Forwarded-Host", host), ("Forwarded", f"host={host}"), ("X-Host", host), ("X-Base-Url", url))
    yield from (("Proxy", url), ("Proxy-Authorization", "Basic eDp5"), ("X-Forwarded-Server", host))
    yield from (("x-litellm-api-base", url), ("x-gateway-provider", url), ("x-gateway-deployment", url))
    yield from (("helicone-target-url", url), ("openai-organization", "org-x"), ("x-upstream", url), ("Via", host))
    yield from (("x-gateway-base-url", url), ("Origin", url), ("Referer", url), ("Cookie", "a=b"))
    yield from (("Connection", "authorization, content-type"), ("X-Forwarded-Proto", "https"), ("TE", "trailers"))


def _check_calls(lab: Lab, target: Target, host: str) -> None:
    """Each call was made to what is configured, as it is configured, and nothing of the client's headers is in it."""
    configured = target.upstream.url.split("/")[2]
    for call in target.upstream.calls:
        lab.check(call.line == f"POST {client.CHAT_PATH} HTTP/1.1", f"the upstream was asked for {call.line!r}")
        lab.check(call.headers["host"] == configured, f"the upstream was told the host {call.headers['host']!r}")
        more = {*call.headers} - _OUR_HEADERS
        lab.check(not more, f"headers that are not ours went to the upstream: {more}")
        authorised = call.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
        lab.check(authorised, f"the upstream was sent {call.headers['authorization']!r}")
        lab.check(host not in json.dumps(dict(call.headers)), "the canary's address went to the upstream in a header")
        lab.check(call.body.get("model") == "probed", f"the upstream was asked for {call.body.get('model')!r}")


def _check_unheard(lab: Lab, canary: Upstream) -> None:
    lab.check(not canary.connections, f"{canary.connections} connections to the canary")


def steering_names(lab: Lab) -> str:
    """Model names, targets, hosts and documents that are addresses: none is contacted, and none becomes a path."""
    target, canary = target_of_bytes(lab), lab.upstream()
    url, host = canary.url, canary.url.split("/")[2]
    models = (
        *(
            url,
            f"openai/{url}",
            f"m@{host}",
            f"m#{host}",
            f"m?api_base={url}",
            "m/../../admin",
            "../m",
            "/m",
            "m/",
            "m\n",
        ),
        *(f"custom/{host}/m", "m;api_base=x", "%6d", "m%00", "file:///etc/passwd", "p0/m", "d0/probed", "M"),
    )
    for model in models:
        status = target.gateway.chat(target.key, model=model).status
        lab.check(status in (400, 403, 404), f"the model {model!r} was answered {status}")
    raws = dict(_addressed(target.key, url, host))
    seen = target.refused(raws, 400, 404)
    served = [target.gateway.ask(target.key, body).status for body in _documents(url)]
    lab.check(set(served) <= {200, 400}, f"documents by address were answered {shares(served)}")
    _check_calls(lab, target, host)
    _check_unheard(lab, canary)
    target.untouched(calls=served.count(200))
    return f"{len(models)} model names, {len(raws)} targets ({seen}), {len(served)} documents: nothing was contacted"


def _addressed(key: str, url: str, host: str) -> Iterator[tuple[str, bytes]]:
    """Requests whose target or Host is an address."""
    raw = client.CHAT_BODY
    base = url.removesuffix("/v1")
    for target in (
        f"{base}{client.CHAT_PATH}",
        f"//{host}{client.CHAT_PATH}",
        f"/{url}",
        f"/{base}{client.CHAT_PATH}",
        f"@{host}/",
    ):
        yield target, post(key, sized(raw), CLOSE, body=raw, first=f"POST {target} HTTP/1.1")
    yield "CONNECT", head(f"CONNECT {host} HTTP/1.1", f"Host: {host}", *bearer(key))
    yield "a user", head(f"POST {client.CHAT_PATH} HTTP/1.1", f"Host: x@{host}", *bearer(key), sized(raw), CLOSE) + raw
    yield "a URL", head(f"POST {client.CHAT_PATH} HTTP/1.1", f"Host: {url}", *bearer(key), sized(raw), CLOSE) + raw


def _documents(url: str) -> Iterator[object]:
    """Chats that refer to things by address: a provider may fetch them, we never do."""
    parts = (
        {"type": "image_url", "image_url": {"url": f"{url}/a.png"}},
        {"type": "image_url", "image_url": f"{url}/a.png"},
        {"type": "input_audio", "input_audio": {"data": f"{url}/a.wav", "format": "wav"}},
        {"type": "file", "file": {"file_data": f"{url}/a.pdf", "filename": f"{url}/b"}},
        {"type": "file", "file": {"file_id": f"{url}/a"}},
        {"type": "video_url", "video_url": {"url": f"{url}/a.mp4"}},
        {"type": "text", "text": f"read {url}/prompt"},
    )
    for part in parts:
        yield client.chat() | {"messages": [{"role": "user", "content": [part]}]}
    deep = {"api_base": url, "base_url": url, "headers": {"Host": url}, "extra_body": {"api_base": url}}
    yield client.chat(metadata=deep)
    yield client.chat(
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": deep}} | deep}]
    )
    yield client.chat(tools=[{"type": "mcp", "server_url": url, "server_label": "x"}])
    yield client.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": url}}})
    yield client.chat() | {"messages": [{"role": "user", "content": "ping", **deep}]}
    yield client.chat(webhook=url, callback_url=url, callbacks=[url], cache={"no-cache": True})


PROBES = (
    Probe("steering-fields", "upstream-choice", steering_fields),
    Probe("steering-names", "upstream-choice", steering_names),
)
