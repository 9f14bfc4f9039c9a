"""Reads chat streams the way most Python programs do that measure servers: asyncio, an HTTP library that reads with
a timeout and hands on pieces of the body, a line reader on top, json.loads for each event, and a few notes a token.

The library is httpx where it is installed. Otherwise the few lines of it that this needs are written out here over
asyncio's streams, without its generality, and so cheaper than it. Prints one JSON object: which one it was, tokens
counted, and what the process itself used between the first request and the end of the last answer.

    asyncio_client.py PORT STREAMS REQUESTS MAX_TOKENS ID_PREFIX LIMIT_S
"""

import asyncio
import codecs
import json
import resource
import sys
import time

try:
    import httpx
except ImportError:
    httpx = None

READ_TIMEOUT_S = 600


def payload(max_tokens):
    return {
        "model": "simulated-8b",
        "messages": [{"role": "user", "content": "Tell a long story."}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


class Answer:
    """What is noted of an answer."""

    def __init__(self):
        self.tokens, self.chunks, self.text = 0, 0, []
        self.first, self.last, self.gaps = None, None, []

    def line(self, line):
        if not line.startswith("data: ") or line == "data: [DONE]":
            return
        event = json.loads(line[6:])
        usage = event.get("usage")
        if usage:
            self.tokens = max(self.tokens, usage["completion_tokens"])
        for choice in event["choices"][:1]:
            delta = choice["delta"]
            text = (delta.get("reasoning") or delta.get("reasoning_content") or "") + (delta.get("content") or "")
            if text:
                now = time.perf_counter()
                if self.first is None:
                    self.first = now
                else:
                    self.gaps.append(now - self.last)
                self.last = now
                self.chunks += 1
                self.text.append(text)


class Connection:
    """One HTTP/1.1 connection."""

    async def open(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        self.bytes = b""
        return self

    async def read(self):
        """More bytes, within the limit."""
        piece = await asyncio.wait_for(self.reader.read(65536), READ_TIMEOUT_S)
        if not piece:
            raise SystemExit("the server closed the connection")
        self.bytes += piece

    async def upto(self, mark):
        while mark not in self.bytes:
            await self.read()
        found, self.bytes = self.bytes.split(mark, 1)
        return found

    async def send(self, request_id, body):
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"x-request-id: {request_id}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        await self.writer.drain()
        status, *headers = (await self.upto(b"\r\n\r\n")).decode().split("\r\n")
        self.headers = dict(header.lower().split(": ", 1) for header in headers)
        if " 200 " not in status or self.headers.get("transfer-encoding") != "chunked":
            raise SystemExit(f"the server answered {status}")

    async def body(self):
        """Pieces of the body as they come."""
        while True:
            size = int(await self.upto(b"\r\n"), 16)
            while len(self.bytes) < size + 2:
                await self.read()
            piece, self.bytes = self.bytes[:size], self.bytes[size + 2 :]
            if size == 0:
                return
            yield piece

    async def lines(self):
        decoder, rest = codecs.getincrementaldecoder("utf-8")(), ""
        async for piece in self.body():
            *lines, rest = (rest + decoder.decode(piece)).split("\n")
            for line in lines:
                yield line


async def by_streams(connection, requests, max_tokens, request_id):
    tokens = 0
    for ordinal in range(requests):
        answer = Answer()
        await connection.send(f"{request_id}-{ordinal}", json.dumps(payload(max_tokens)).encode())
        async for line in connection.lines():
            answer.line(line)
        tokens += answer.tokens
    return tokens


async def by_httpx(client, port, requests, max_tokens, request_id):
    tokens = 0
    for ordinal in range(requests):
        answer = Answer()
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        headers = {"x-request-id": f"{request_id}-{ordinal}"}
        async with client.stream("POST", url, json=payload(max_tokens), headers=headers) as response:
            if response.status_code != 200:
                raise SystemExit(f"the server answered {response.status_code}")
            async for line in response.aiter_lines():
                answer.line(line)
        tokens += answer.tokens
    return tokens


def used_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def main(port, streams, requests, max_tokens, prefix, limit_s):
    names = [f"{prefix}-{number}" for number in range(streams)]
    if httpx:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        client = httpx.AsyncClient(limits=limits, timeout=READ_TIMEOUT_S, trust_env=False)
        work = [by_httpx(client, port, requests, max_tokens, name) for name in names]
    else:
        connections = [await Connection().open(port) for _ in names]
        work = [by_streams(c, requests, max_tokens, name) for c, name in zip(connections, names)]
    cpu, begin = used_s(), time.monotonic()
    tokens = sum(await asyncio.wait_for(asyncio.gather(*work), limit_s))
    cpu, span = used_s() - cpu, time.monotonic() - begin
    library = f"httpx {httpx.__version__}" if httpx else "asyncio streams"
    print(json.dumps({"library": library, "tokens": tokens, "cpu_s": cpu, "span_s": span}))


if __name__ == "__main__":
    port, streams, requests, max_tokens = map(int, sys.argv[1:5])
    asyncio.run(main(port, streams, requests, max_tokens, sys.argv[5], float(sys.argv[6])))
