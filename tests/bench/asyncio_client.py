"""Reads chat streams the way most Python clients do: asyncio streams, a line reader, json.loads for each event.

Standard library only. Prints one JSON object: tokens counted, and what the process itself used between the
first request and the end of the last answer.

    asyncio_client.py PORT STREAMS REQUESTS MAX_TOKENS ID_PREFIX LIMIT_S
"""

import asyncio
import json
import resource
import sys
import time


def request(stream, ordinal, max_tokens, prefix):
    body = json.dumps(
        {
            "model": "simulated-8b",
            "messages": [{"role": "user", "content": "Tell a long story."}],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
    )
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"x-request-id: {prefix}-{stream}-{ordinal}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def body_lines(reader):
    """Lines of a body in chunks."""
    rest = b""
    while True:
        size = int(await reader.readline(), 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        *lines, rest = (rest + data[:-2]).split(b"\n")
        for line in lines:
            yield line


async def answer(reader):
    """Reads one answer; gives its tokens."""
    status = await reader.readline()
    if b" 200 " not in status:
        raise SystemExit(f"the server answered {status!r}")
    while (await reader.readline()).strip():
        pass
    tokens, text, first, last = 0, [], None, None
    async for line in body_lines(reader):
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
        for choice in event["choices"]:
            content = choice["delta"].get("content")
            if content:
                last = time.perf_counter()
                first = first or last
                text.append(content)
    return tokens


async def stream(connection, number, requests, max_tokens, prefix):
    reader, writer = connection
    tokens = 0
    for ordinal in range(requests):
        writer.write(request(number, ordinal, max_tokens, prefix))
        await writer.drain()
        tokens += await answer(reader)
    writer.close()
    return tokens


def used_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def main(port, streams, requests, max_tokens, prefix, limit_s):
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(streams)]
    cpu, begin = used_s(), time.monotonic()
    work = [stream(c, n, requests, max_tokens, prefix) for n, c in enumerate(connections)]
    tokens = sum(await asyncio.wait_for(asyncio.gather(*work), limit_s))
    cpu, span = used_s() - cpu, time.monotonic() - begin
    print(json.dumps({"tokens": tokens, "cpu_s": cpu, "span_s": span}))


if __name__ == "__main__":
    port, streams, requests, max_tokens = map(int, sys.argv[1:5])
    asyncio.run(main(port, streams, requests, max_tokens, sys.argv[5], float(sys.argv[6])))
