"""A stdio MCP server for tests, by hand, so that every byte of it is chosen. Its argument says what it does wrong."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

VICE = sys.argv[1] if len(sys.argv) > 1 else "none"
RESULT = (
    '{"zebra":{"y":1,"x":[ ]},"content":[{"type":"hologram","data":{"b":2,"a":1}}],"structuredContent":'
    '{"big":18446744073709551617,"tiny":1e-400,"exact":1.10},"_meta":{"vendor/trace":{"z":[1.0]}}, "isError":false}'
)
NAMES = [
    "raw", "env", "pid", "spawn", "slow", "taken_back", "say", "flood", "huge", "leave", "asks", "peek", "files", "meta",
    "announce", "lists", "logs",
]
lock = threading.Lock()


def vice(name):
    return float(VICE.removeprefix(name)) if VICE.startswith(name) else 0


cancelled = []
answers = []
asked = []
# what it offers besides, once it was told to; declared by the vice "announces" alone
prompts = []


def write(line):
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def answer(id, result):
    write('{"jsonrpc":"2.0","id":%s,"result":%s}' % (id, result))


def text(id, value):
    answer(id, json.dumps({"content": [{"type": "text", "text": value}]}))


def slowly(id, meta):
    token = meta.get("progressToken")
    for n in range(40):
        if token is not None:
            params = {"progressToken": token, "progress": n}
            write(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        time.sleep(0.05)
        if id in cancelled:
            return
    text(id, "slow")


def peeked(path):
    try:
        with open(path, "rb") as file:
            return "read" if path.endswith("mem") else file.read().decode()
    except PermissionError:
        return "refused"


def touched(path):
    """What can be done with a file: be read, written, moved."""
    can = ""
    try:
        open(path).close()
        can += "r"
    except PermissionError:
        pass
    try:
        open(path, "a").close()
        can += "w"
    except PermissionError:
        pass
    try:
        os.rename(path, path + ".moved")
        os.rename(path + ".moved", path)
        can += "m"
    except OSError:
        pass
    return can


def call(id, name, arguments, meta):
    if name == "raw":
        answer(id, RESULT)
    elif name == "env":
        text(id, json.dumps({**os.environ, "cwd_is_there": os.getcwd() != ""}))
    elif name == "pid":
        text(id, str(os.getpid()))
    elif name == "spawn":
        # it holds our standard output open, and ignores what asks it to end
        child = subprocess.Popen(["sh", "-c", "trap '' TERM HUP; while :; do sleep 60; done"])
        text(id, str(child.pid))
    elif name == "slow":
        threading.Thread(target=slowly, args=(id, meta), daemon=True).start()
    elif name == "taken_back":
        text(id, json.dumps(len(cancelled)))
    elif name == "say":
        print(arguments["text"], file=sys.stderr, flush=True)
        text(id, "said")
    elif name == "flood":
        for _ in range(arguments["lines"]):
            sys.stderr.write("x" * 1000 + "\n")
        sys.stderr.flush()
        text(id, "flooded")
    elif name == "huge":
        text(id, "h" * arguments["bytes"])
    elif name == "peek":
        text(id, json.dumps({what: peeked("/proc/%d/%s" % (os.getppid(), what)) for what in ["environ", "mem"]}))
    elif name == "files":
        text(id, json.dumps({path: touched(path) for path in arguments["paths"]}))
    elif name == "meta":
        text(id, json.dumps(meta))
    elif name == "announce":
        NAMES.extend(arguments.get("tools", []))
        prompts.extend(arguments.get("prompts", []))
        notice = {"jsonrpc": "2.0", "method": "notifications/%s/list_changed" % arguments["what"]}
        for _ in range(arguments.get("times", 1)):
            write(json.dumps(notice))
        text(id, "announced")
    elif name == "lists":
        text(id, str(asked.count("tools/list")))
    elif name == "logs":
        params = {"level": "error", "logger": "disk", "data": "full"}
        write(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
        answer(id, '{"content":[]}')
    elif name == "leave":
        os._exit(7)
    elif name == "asks":
        for method in ["ping", "sampling/createMessage"]:
            write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": {}}))
        while len(answers) < 2:
            handle(json.loads(sys.stdin.readline()))
        text(id, json.dumps(answers))


def described(path):
    with open(path + ".lists", "a") as lists:
        lists.write("%d\n" % os.getpid())
    with open(path) as file:
        description = file.read()
    # the next program that is asked waits, unless it is this one
    hold, held = path + ".hold", path + ".held"
    if os.path.exists(hold) and open(hold).read() != str(os.getpid()):
        os.rename(hold, held)
        while os.path.exists(held):
            time.sleep(0.01)
    return description


def handle(message):
    method, id = message.get("method"), message.get("id")
    asked.append(method)
    if VICE == "old" and method == "server/discover":
        os._exit(4)
    if method is None:
        answers.append(message)
    elif method == "initialize":
        if VICE == "modern":
            error = {"code": -32601, "message": "Method not found"}
            return write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}))
        listed = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
        capabilities = listed if VICE == "announces" else {"tools": {}}
        result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "p", "version": "1"}}
        answer(id, json.dumps(result))
    elif method == "server/discover":
        answer(id, json.dumps({"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}))
    elif method == "ping":
        answer(id, "{}")
    elif method == "tools/list" and VICE == "falls":
        print("no folder for %s" % os.environ["PROGRAM_OWN"], file=sys.stderr, flush=True)
        os._exit(3)
    elif method == "tools/list":
        time.sleep(vice("lists-"))
        description = "" if not VICE.startswith("described-") else described(VICE.removeprefix("described-"))
        tools = [{"name": name, "description": description, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}} for name in NAMES]
        answer(id, json.dumps({"tools": tools}))
    elif method == "prompts/list":
        answer(id, json.dumps({"prompts": [{"name": name} for name in prompts]}))
    elif method == "notifications/cancelled":
        cancelled.append(message["params"]["requestId"])
    elif method == "tools/call":
        params = message["params"]
        call(id, params["name"], params["arguments"], params.get("_meta", {}))


if VICE == "dies":
    print("cannot start: token=ghp_0123456789abcdefghijABCDEFGHIJ012345", file=sys.stderr)
    sys.exit(3)
if VICE == "noise":
    write("\x1b[32mWelcome!\x1b[0m this is no message")
    write("[1,2,3]")
    sys.stdout.buffer.write(b"\xff\xfe\n")
if VICE.startswith("silent-"):
    # it is at something, and says when it is asked to end
    def asked(*_):
        open(VICE.removeprefix("silent-"), "w").close()
        os._exit(0)

    signal.signal(signal.SIGTERM, asked)
    while True:
        signal.pause()
if VICE.startswith("lingers-"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(vice("starts-"))
while line := sys.stdin.readline():
    handle(json.loads(line))
if VICE.startswith("lingers-"):
    print("lingers", file=sys.stderr, flush=True)
    time.sleep(vice("lingers-"))
