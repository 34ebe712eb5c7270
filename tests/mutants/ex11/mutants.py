"""Exercise 11: wrong answers that learners would give, and what the check says to each; and right ones written otherwise.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name] = source. Data
alone: nothing runs here.
"""

SEND = "def my_send(model, cache, ids, text, n, encode, decode):\n"
BRANCH = "def my_branch(chat, turns):\n"
DRIFT = "def my_drift(render, messages):\n"
FAULT = "def my_fault(header, rows, model, tokenizer, digest):\n"

FIRST = "    ids.extend(encode(text))\n"
CALL = "        logits = model(torch.tensor([ids[cache.length :]]), cache=cache)\n"
NEXT = "        ids.append(int(logits[0, -1].argmax()))\n"
REPLY = "    return decode(ids[-n:])\n"


def send(first: str = FIRST, call: str = CALL, after: str = NEXT, end: str = REPLY, loop: str = "range(n)") -> str:
    return f"{SEND}{first}    for _ in {loop}:\n{call}{after}{end}"


def passing(first: str, before: str = FIRST, put: str = NEXT, end: str = REPLY) -> str:
    """The tokens of the first call are this expression; afterwards each new id is passed."""
    return (
        f"{SEND}    old = len(ids)\n{before}    waiting = {first}\n    for _ in range(n):\n"
        f"        logits = model(torch.tensor([waiting]), cache=cache)\n{put}        waiting = ids[-1:]\n{end}"
    )


SENDS = {
    "nothing returned": (send(end=""), "The reply is a text, a str; got None. decode makes text of ids"),
    "ids returned": (send(end="    return ids[-n:]"), "a str; got a list of"),
    "without the cache": (send(call=CALL.replace(", cache=cache", "")), "A call left out cache=cache"),
    "a list for the model": (
        send(call="        logits = model([ids[cache.length :]], cache=cache)\n"),
        r"int64 tensor \(1, T\); it was given a list",
    ),
    "one axis only": (
        send(call="        logits = model(torch.tensor(ids[cache.length :]), cache=cache)\n"),
        "was given an int64 tensor",
    ),
    "the text for the model": (send(first="    ids.extend(text)\n"), "stopped with|ids is"),
    "everything again": (
        passing("ids[:]"),
        r"4 of these have rows.* all of it was computed again, though the cache holds the first 4",
    ),
    "everything again, every time": (
        send(call="        logits = model(torch.tensor([ids]), cache=cache)\n"),
        "all of it was computed again, though the cache holds the first",
    ),
    "the new text only": (
        passing("ids[old:]"),
        r"the reply's last token was left out. It was chosen, but never went.* The next logits are .* off a fresh computation",
    ),
    "the last token twice": (
        passing("ids[cache.length - 1 :]"),
        "has its row already, and was computed twice",
    ),
    "the reply's last token twice in front": (
        passing("[ids[old - 1]] + ids[cache.length :]"),
        "went in twice",
    ),
    "a reply's last token once more at its end": (
        send(end="    model(torch.tensor([ids[-1:]]), cache=cache)\n" + REPLY),
        "All right, but 6 tokens went through the model, and 5 are needed|All right, but . tokens",
    ),
    "one at least": (
        send(call=CALL.replace("ids[cache.length :]", "ids[min(cache.length, len(ids) - 2) :]")),
        "Each of its tokens goes through once, before the next is chosen",
    ),
    "always one behind": (
        passing("ids[max(old - 1, 0) :]"),
        r"loaded from a file without K and V.*not only the last token may lack its row. The cache's length says",
    ),
    "always one behind, or all": (
        passing("ids[old - 1 :] if cache.length else ids"),
        r"after going back to an earlier turn|with K and V of a part",
    ),
    "all but one have rows": (
        send(
            first="    rows = len(ids) - 1\n" + FIRST,
            call="        logits = model(torch.tensor([ids[max(rows, 0) :]]), cache=cache)\n        rows = len(ids)\n",
        ),
        "loaded from a file without K and V",
    ),
    "encoded again, as one text": (
        send(first="    ids[:] = encode(decode(ids) + text)\n"),
        r"The conversation was \[30, 0, 1, 31\], which reads 'afabag'. Encoded again, that is \[30, 26, 31\]; in yours ids now",
    ),
    "encoded again for the model": (
        f"{SEND}    seen = encode(decode(ids) + text)\n{FIRST}    for _ in range(n):\n"
        "        logits = model(torch.tensor([seen[cache.length :]]), cache=cache)\n"
        "        ids.append(int(logits[0, -1].argmax()))\n        seen.append(ids[-1])\n" + REPLY,
        "with the text, .* went through the model. Use the ids, not their text",
    ),
    "the last reply encoded again": (
        send(first="    ids[2:] = encode(decode(ids[2:]))\n" + FIRST),
        "Encoded again, that is|in yours ids now begins",
    ),
    "another list": (send(first="    ids = ids + encode(text)\n"), "The caller's list itself has to grow"),
    "text not kept": (
        f"{SEND}    waiting = ids[cache.length :] + encode(text)\n    for _ in range(n):\n"
        "        logits = model(torch.tensor([waiting]), cache=cache)\n"
        "        ids.append(int(logits[0, -1].argmax()))\n        waiting = ids[-1:]\n" + REPLY,
        "ids should begin with",
    ),
    "reply not kept": (
        f"{SEND}{FIRST}    waiting, reply = ids[cache.length :], []\n    for _ in range(n):\n"
        "        logits = model(torch.tensor([waiting]), cache=cache)\n"
        "        reply.append(int(logits[0, -1].argmax()))\n        waiting = reply[-1:]\n    return decode(reply)",
        r"should grow by 2 \+ 3; it grew by 2 \+ 0",
    ),
    "a reply of one": (send(loop="range(1)"), r"should grow by 2 \+ 3; it grew by 2 \+ 1"),
    "a reply of n + 1": (send(loop="range(n + 1)"), r"should grow by 2 \+ 3; it grew by 2 \+ 4"),
    "tensors for ids": (
        send(after="        ids.append(logits[0, -1].argmax())\n"),
        "decode takes a list of ids; yours gave it a list of . Tensor",
    ),
    "first row of logits": (
        send(after=NEXT.replace("[0, -1]", "[0, 0]")),
        "Token 0 of the reply is .*It comes from the last row of logits",
    ),
    "the unlikeliest": (send(after=NEXT.replace("argmax", "argmin")), "the likeliest after all in front of it"),
    "the text with it": (
        f"{SEND}    old = len(ids)\n" + send(end="    return decode(ids[old:])").split("\n", 1)[1],
        "tokens of the reply read '.*'; yours returned",
    ),
    "all of it": (send(end="    return decode(ids)"), "tokens of the reply read"),
    "the reply without its last": (send(end="    return decode(ids[-n:-1])"), "tokens of the reply read"),
    "rows remembered, not asked for": (
        SEND.replace("decode)", "decode, rows={})")
        + "    waiting = rows.get(tuple(ids), cache.length)\n"
        + FIRST
        + "    waiting = ids[waiting:]\n    for _ in range(n):\n        logits = model(torch.tensor([waiting]), cache=cache)\n"
        + NEXT
        + "        waiting = ids[-1:]\n    rows[tuple(ids)] = len(ids)\n"
        + REPLY,
        "turn 2 with one cache.*the reply's last token was left out",
    ),
}

STOP = "    stop = chat['stops'][turns - 1] if turns else 0\n"
IDS = "chat['ids'][:stop]"
STOPS = "chat['stops'][:turns]"
LENGTH = "min(chat['length'], stop)"
KV = "chat['kv'].clone()"


def branch(stop: str = STOP, ids: str = IDS, stops: str = STOPS, length: str = LENGTH, kv: str = KV) -> str:
    return f"{BRANCH}{stop}    return {{'ids': {ids}, 'stops': {stops}, 'length': {length}, 'kv': {kv}}}"


BRANCHES = {
    "nothing returned": (branch().replace("return ", ""), "expected a dict with ids, stops, length and kv; got None"),
    "a tuple": (
        BRANCH + STOP + f"    return {IDS}, {STOPS}, {LENGTH}, {KV}",
        "expected a dict with ids, stops, length and kv; got a tuple",
    ),
    "without kv": (BRANCH + STOP + f"    return {{'ids': {IDS}, 'stops': {STOPS}, 'length': {LENGTH}}}", "yours has no kv"),
    "the length as a list": (branch(length="chat['stops'][:turns]"), "'length' should be an int; it is a list"),
    "turns taken for ids": (branch(ids="chat['ids'][:turns]"), r"its ids are \[.*\]; yours \[.\]"),
    "one turn off": (branch(stop="    stop = chat['stops'][min(turns, 2)]\n"), "its ids are"),
    "turns dropped, not kept": (
        branch(stop="    stop = chat['stops'][len(chat['stops']) - turns - 1] if turns < len(chat['stops']) else 0\n"),
        r"A branch with 1 of 3 turns \(stops \[4, 8, 11\], length 10\): its ids are",
    ),
    "the last id left out": (branch(ids="chat['ids'][: max(stop - 1, 0)]"), "its ids are"),
    "all ids": (branch(ids="list(chat['ids'])"), "its ids are"),
    "all stops": (branch(stops="list(chat['stops'])"), r"they end at \[4, 8\]; yours has the stops \[4, 8, 11\]"),
    "stops counted from the end": (branch(stops="chat['stops'][-turns:] if turns else []"), "they end at"),
    "rows not cut": (
        branch(length="chat['length']"),
        r"it has 4 ids, and so at most 4 rows; its length is 10. The rows behind belong to turns that are gone",
    ),
    "a row for each id": (
        branch(length="stop"),
        r"the chat had 10 rows for its 11 ids, so its branch has no more; its length is 11. Slot 10 was never written",
    ),
    "one row too many": (branch(length="min(chat['length'], stop + 1)"), "at most 4 rows; its length is 5"),
    "always one row less": (
        branch(length="max(min(chat['length'], stop - 1), 0)"),
        r"4 rows are there of the ids that stay.*its length is 3: some would be computed again. The last token of a reply gets",
    ),
    "no rows": (branch(length="0"), "4 rows are there of the ids that stay.* its length is 0"),
    "rows only if all are there": (
        branch(length="stop if chat['length'] >= stop else len(chat['ids']) - 1 if chat['length'] == 10 else 0"),
        "some would be computed again",
    ),
    "fresh slots": (branch(kv="torch.zeros_like(chat['kv'])"), "row 0 of its kv is not row 0 of the chat's"),
    "another dtype": (branch(kv="chat['kv'].float()"), "kv was a float64 tensor .* and is a float32 tensor"),
    "the last rows": (branch(kv="chat['kv'].roll(-1, 3)"), "Rows stay in their slots"),
    "cut on another axis": (branch(kv="chat['kv'][:stop].flip(0)"), "row 0 of its kv is not"),
    "rows in use only": (
        branch(kv="chat['kv'][..., :stop, :].clone()"),
        r"the chat's kv is \(2, 2, 1, 16, 2\), and its branch's \(2, 2, 1, 4, 2\). It needs slots for what will follow",
    ),
    "no turn is the last one": (
        branch(stop="    stop = chat['stops'][turns - 1]\n"),
        r"A branch with 0 of 3 turns.*nothing has been said in it; yours is \{'ids': \[",
    ),
    "at least one row": (branch(length="max(1, min(chat['length'], stop)) if chat['length'] else 0"), "nothing has been said"),
    "cut in place": (
        BRANCH
        + STOP
        + "    del chat['ids'][stop:]\n    del chat['stops'][turns:]\n"
        + f"    return {{'ids': list(chat['ids']), 'stops': list(chat['stops']), 'length': {LENGTH}, 'kv': {KV}}}",
        r"the chat's own 'ids' has changed. It was .* It will go on, too",
    ),
    "the same dict": (
        BRANCH + STOP + f"    chat.update(ids={IDS}, stops={STOPS}, length={LENGTH}, kv={KV})\n    return chat",
        "the chat's own 'ids' has changed",
    ),
    "the rows wiped": (
        BRANCH
        + STOP
        + f"    kv = {KV}\n    chat['kv'][..., stop:, :] = 0\n"
        + f"    return {{'ids': {IDS}, 'stops': {STOPS}, 'length': {LENGTH}, 'kv': kv}}",
        "the chat's own 'kv' has changed",
    ),
    "one kv for both": (
        branch(kv="chat['kv']"),
        "then the chat went on, and the branch's 'kv' changed with it. Both are the same tensor, or a view of it",
    ),
    "a view of kv": (branch(kv="chat['kv'][:]"), "the two overwrite each other's rows"),
    "one list for both": (
        branch(ids="chat['ids'] if turns == len(chat['stops']) else chat['ids'][:stop]"),
        "the branch's 'ids' changed with it. Both are the same list",
    ),
    "one list of stops": (
        branch(stops="chat['stops'] if turns == len(chat['stops']) else chat['stops'][:turns]"),
        "the branch's 'stops' changed with it",
    ),
    "a copy, shallow": (
        BRANCH
        + STOP
        + "    other = dict(chat)\n    if turns < len(chat['stops']):\n"
        + f"        other.update(ids={IDS}, stops={STOPS}, length={LENGTH}, kv={KV})\n    return other",
        "changed with it",
    ),
    "the last turn always lacks a row": (
        branch(length="max(0, min(chat['length'], len(chat['ids']) - 1, stop))"),
        "some of it a branch itself: expected stops .* yours has length",
    ),
}

HEAD = (
    "    turn = 0\n    for i, message in enumerate(messages[:-1]):\n        if message['role'] == 'assistant':\n"
    "            turn += 1\n"
)
HELD = "            held = render(messages[:i]) + message['content']\n"
PROMPT = "            prompt = render(messages[: i + 2])\n"
PARTS = (
    "            for place in range(len(held)):\n                if prompt[place : place + 1] != held[place]:\n"
    "                    return turn, place\n"
)


def drift(head: str = HEAD, held: str = HELD, prompt: str = PROMPT, parts: str = PARTS, end: str = "    return None") -> str:
    return f"{DRIFT}{head}{held}{prompt}{parts}{end}"


DRIFTS = {
    "True or False": (
        drift(parts="            if not prompt.startswith(held):\n                return False\n", end="    return True"),
        r"expected None or a pair of ints \(turn, place\); got a bool",
    ),
    "a list": (drift(parts=PARTS.replace("turn, place", "[turn, place]")), "got a list of 2 int"),
    "the turn alone": (drift(parts=PARTS.replace("turn, place", "turn")), "got an int"),
    "the two texts": (drift(parts=PARTS.replace("turn, place", "held, prompt")), "got a tuple of 2 str"),
    "messages one by one": (
        drift(held="            held = ''.join(render(m) for m in messages[:i]) + message['content']\n"),
        "render takes a list of messages; yours gave it a dict",
    ),
    "the empty beginning": (
        drift(head=HEAD.replace("    for", "    render(messages[:0])\n    for")),
        "render takes a list of messages; yours gave it an empty one",
    ),
    "must be equal": (
        drift(parts="            if held != prompt:\n                return turn, len(held)\n"),
        "Every prompt begins with the one before it and its reply: None; got",
    ),
    "the reply rendered, too": (
        drift(held="            held = render(messages[: i + 1]) + message['content']\n"),
        "Every prompt begins with the one before it",
    ),
    "from the first message to the last": (
        drift(held="            held = render(messages[:i]) + messages[1]['content']\n"),
        "Every prompt begins with the one before it",
    ),
    "a system message counts as a question": (
        DRIFT
        + "    for turn, i in enumerate(range(1, len(messages) - 1, 2), 1):\n        message = messages[i]\n"
        + (HELD + PROMPT + PARTS).replace("            ", "        ", 1).replace("\n            ", "\n        ")
        + "    return None",
        "Every prompt begins with the one before it|takes turns",
    ),
    "without the reply": (
        drift(held="            held = render(messages[:i])\n"),
        r"'hi' / 'hello ' / 'bye': the template takes the white space off a reply's end. After turn 1 the cache holds",
    ),
    "white space does not matter": (
        drift(
            parts="            held, prompt = held.rstrip(), prompt.rstrip()\n" + PARTS,
        ),
        "takes the white space off a reply's end",
    ),
    "place off by one": (drift(parts=PARTS.replace("turn, place", "turn, place + 1")), r"Expected \(1, \d+\); got"),
    "place within the reply": (
        drift(parts=PARTS.replace("turn, place", "turn, place - len(render(messages[:i]))")),
        r"Expected \(1, \d+\); got \(1, \d\)",
    ),
    "the length of what is held": (drift(parts=PARTS.replace("turn, place", "turn, len(held)")), r"Expected \(1, \d+\); got"),
    "turns from 0": (drift(parts=PARTS.replace("turn, place", "turn - 1, place")), r"Expected \(1, \d+\); got \(0,"),
    "the reply looked for anywhere": (
        drift(
            parts="            if message['content'] not in prompt:\n" + "".join(f"    {line}\n" for line in PARTS.splitlines())
        ),
        "the template counts the messages at the very front",
    ),
    "compared from the reply on": (
        drift(
            parts=PARTS.replace("range(len(held))", "range(len(render(messages[:i])), len(held))"),
        ),
        r"the template counts the messages at the very front. After turn 1 the cache holds .* Expected \(1, 0\)",
    ),
    "system left out": (
        drift(
            held="            start = messages[0]['role'] == 'system'\n"
            "            held = render(messages[start:i]) + message['content']\n",
            prompt="            prompt = render(messages[start : i + 2])\n",
        ),
        "in front of|Expected",
    ),
    "the first turn only": (
        drift(parts=PARTS + "            return None\n"),
        r"the replies before turn 2 are written as they were. After turn 2 .* got None",
    ),
    "the last turn only": (
        drift(head=HEAD.replace("turn += 1", "turn += 1\n        if i == len(messages) - 2:")),
        r"the replies before turn 3|the first is meant",
    ),
    "the last drift": (
        drift(
            head="    found = None\n" + HEAD,
            parts=PARTS.replace("return turn, place", "found = turn, place\n                    break"),
            end="    return found",
        ),
        r"After turn 3 the cache holds.* got \(4,",
    ),
    "messages counted, not turns": (
        drift(parts=PARTS.replace("turn, place", "(i + 1) // 2 + (messages[0]['role'] == 'system' and i > 2), place")),
        "the system message is no turn",
    ),
    "zip": (
        drift(
            parts="            for place, (a, b) in enumerate(zip(held, prompt)):\n                if a != b:\n"
            "                    return turn, place\n"
        ),
        r"cuts the text off after 60 characters. .* the next prompt ends there, from character 60 on. Expected \(1, 60\)",
    ),
    "index behind the end": (
        drift(parts=PARTS.replace("prompt[place : place + 1]", "prompt[place]")),
        "stopped with IndexError",
    ),
    "the last reply, too": (
        drift(
            head=HEAD.replace("messages[:-1]", "messages"),
        ),
        "no question came after its last reply, so no prompt was made that could differ|Every prompt",
    ),
    "a question must be there": (
        drift(head="    if messages[2]['role'] is None:\n        return None\n" + HEAD),
        "stopped with IndexError",
    ),
    "messages marked": (
        drift(
            head="    for m in messages:\n        m['role'] = m['role'].strip()\n        m.setdefault('seen', True)\n" + HEAD
        ),
        "messages was .* Looking changes nothing",
    ),
    "messages used up": (
        drift(end="    while messages:\n        messages.pop()\n    return None"),
        "Looking changes nothing",
    ),
    "prompts known by their question": (
        drift(
            head="    known = {}\n" + HEAD,
            prompt="            prompt = known.setdefault(messages[i + 1]['content'], render(messages[: i + 2]))\n",
        ),
        "one of many conversations",
    ),
}

REST = "    rest = {k: v for k, v in header.items() if k != 'digest'}\n"
DAMAGED = "    if header.get('digest') != digest(rest, rows):\n        return 'damaged'\n"
NEWER = "    if header['version'] > 2:\n        return 'newer'\n"
MODEL = "    if header.get('model') != model:\n        return 'model'\n"
TOKENIZER = "    if header.get('tokenizer') != tokenizer:\n        return 'tokenizer'\n"


def fault(*steps: str, rest: str = REST, end: str = "    return None") -> str:
    return FAULT + rest + "".join(steps or (DAMAGED, NEWER, MODEL, TOKENIZER)) + end


FAULTS = {
    "yes or no": (
        fault(end="    return True").replace("return 'damaged'", "return False"),
        r"Expected None or one of 'damaged', 'newer', 'model', 'tokenizer'; got a bool",
    ),
    "a sentence": (fault().replace("'newer'", "'newer version'"), "got 'newer version'"),
    "raised": (
        fault().replace("return 'newer'", "raise ValueError('newer')"),
        "stopped with ValueError: newer",
    ),
    "all faults": (
        FAULT + REST + "    return ['newer'] if header['version'] > 2 else None",
        "got a list of 1 str",
    ),
    "the wrong way round": (
        fault(DAMAGED.replace("!=", "=="), NEWER, MODEL, TOKENIZER),
        "its digest is right: None; got 'damaged'",
    ),
    "its own digest in it": (
        fault(rest="    rest = header\n"),
        r"None; got 'damaged'. You made a digest of a header with its own digest in it",
    ),
    "an empty digest in it": (
        fault(rest="    rest = {**header, 'digest': ''}\n"),
        "You made a digest of a header with its own digest in it",
    ),
    "the header left out": (fault(rest="    rest = {}\n"), "its digest is right: None; got 'damaged'"),
    "the rows left out": (fault(DAMAGED.replace("rows)", "rows * 0)"), NEWER, MODEL, TOKENIZER), "None; got 'damaged'"),
    "no older version": (fault().replace("> 2", "!= 2"), "A file of version 1.* None; got 'newer'"),
    "version 2 is newer": (fault().replace("> 2", ">= 2"), "A file of version 2.* None; got 'newer'"),
    "shapes only": (
        fault(
            "    if tuple(header.get('shape', ())) != tuple(rows.shape):\n        return 'damaged'\n", NEWER, MODEL, TOKENIZER
        ),
        "number 0 of the rows has changed in its last bits. Expected 'damaged'; got None",
    ),
    "no digest at all": (fault(NEWER, MODEL, TOKENIZER), "has changed in its last bits"),
    "no digest is no fault": (
        fault(
            DAMAGED.replace("if header.get('digest')", "if 'digest' in header and header['digest']"), NEWER, MODEL, TOKENIZER
        ),
        "there is no digest. Expected 'damaged'; got None",
    ),
    "a KeyError for no digest": (
        fault(DAMAGED.replace("header.get('digest')", "header['digest']"), NEWER, MODEL, TOKENIZER),
        "stopped with KeyError",
    ),
    "eight letters of it": (
        fault(
            DAMAGED.replace("header.get('digest')", "header.get('digest', '')[:8]").replace("rows)", "rows)[:8]"),
            NEWER,
            MODEL,
            TOKENIZER,
        ),
        "the digest has another letter in place 15",
    ),
    "fields that are known": (
        fault(
            "    names = [k for k in ('version', 'model', 'tokenizer', 'ids', 'stops', 'shape') if k in header]\n"
            + DAMAGED.replace("rest", "{k: header[k] for k in names}"),
            NEWER,
            MODEL,
            TOKENIZER,
        ),
        "a field that nobody wrote stands in the header. Expected 'damaged'; got None",
    ),
    "the model ignored": (fault(DAMAGED, NEWER, TOKENIZER), "A whole file by another model. The shapes are the same"),
    "the model's length": (
        fault(
            DAMAGED,
            NEWER,
            MODEL.replace("header.get('model') != model", "len(header.get('model', '')) != len(model)"),
            TOKENIZER,
        ),
        "A whole file by another model. The shapes are the same",
    ),
    "the model's first letters": (
        fault(
            DAMAGED, NEWER, MODEL.replace("header.get('model') != model", "header.get('model', '')[:8] != model[:8]"), TOKENIZER
        ),
        "whose fingerprint differs in its last letter only",
    ),
    "no model is any model": (
        fault(DAMAGED, NEWER, MODEL.replace("header.get('model')", "header.get('model', model)"), TOKENIZER),
        "names no model: nobody knows whose it is. Expected 'model'; got None",
    ),
    "a KeyError for no model": (fault().replace("header.get('model')", "header['model']"), "stopped with KeyError"),
    "the tokenizer ignored": (fault(DAMAGED, NEWER, MODEL), "A whole file by another tokenizer. Its ids stand for other texts"),
    "model for both": (fault().replace("return 'tokenizer'", "return 'model'"), "Expected 'tokenizer'; got 'model'"),
    "the two mixed up": (
        fault(
            DAMAGED,
            NEWER,
            MODEL.replace("return 'model'", "return 'tokenizer'"),
            TOKENIZER.replace("return 'tokenizer'", "return 'model'"),
        ),
        "Expected 'model'; got 'tokenizer'",
    ),
    "newer versions, too": (
        fault(DAMAGED, MODEL, TOKENIZER, "    return 'newer' if header['version'] > 3 else None\n"),
        "Version 3, 2 being the newest that this program reads",
    ),
    "no version looked at": (fault(DAMAGED, MODEL, TOKENIZER), "who knows what its fields mean"),
    "newer first": (
        fault(NEWER, DAMAGED, MODEL, TOKENIZER),
        r"A file with a newer version, and damaged. The first fault counts, 'damaged': while the digest is wrong",
    ),
    "fingerprints first": (fault(MODEL, TOKENIZER, DAMAGED, NEWER), "The first fault counts"),
    "newer last": (fault(DAMAGED, MODEL, TOKENIZER, NEWER), "and not damaged. The first fault counts, 'newer'"),
    "tokenizer before model": (fault(DAMAGED, NEWER, TOKENIZER, MODEL), "The first fault counts, 'model'"),
    "digest taken out": (
        FAULT
        + "    stored = header.pop('digest', None)\n    if stored != digest(header, rows):\n        return 'damaged'\n"
        + NEWER
        + MODEL
        + TOKENIZER
        + "    return None",
        "header has no 'digest' any more.* It is the caller's dict",
    ),
    "both ends of the fingerprint": (
        fault(
            DAMAGED,
            NEWER,
            "    theirs = header.get('model', '')\n    if (theirs[:4], theirs[-4:]) != (model[:4], model[-4:]):\n"
            "        return 'model'\n",
            TOKENIZER,
        ),
        "One of many files: model",
    ),
}

MUTANTS = {"11.1": SENDS, "11.2": BRANCHES, "11.3": DRIFTS, "11.4": FAULTS}

FAIR = {
    "11.1": {
        "step by step": send(),
        "what waits, in a variable": SEND
        + "    ids += encode(text)\n    waiting = ids[cache.length :]\n    reply = []\n    while len(reply) < n:\n"
        "        logits = model(torch.tensor(waiting).view(1, -1), cache=cache)\n"
        "        waiting = [logits[0, -1].argmax().item()]\n        reply += waiting\n    ids += reply\n"
        "    return decode(reply)",
        "a token at a time": SEND + "    for token in encode(text):\n        ids.append(token)\n    stop = len(ids) + n\n"
        "    while len(ids) < stop:\n        while cache.length < len(ids):\n"
        "            logits = model(torch.tensor([[ids[cache.length]]]), cache=cache)\n"
        "        ids.append(logits[0, 0].argmax().item())\n    return decode(ids[stop - n :])",
        "the past first, then the text": SEND
        + "    past = ids[cache.length :]\n    if past:\n        model(torch.tensor([past]), cache=cache)\n"
        "    new = encode(text)\n    ids[len(ids) :] = new\n    start = len(ids)\n    for step in range(n):\n"
        "        logits = model(torch.tensor([new if step == 0 else ids[-1:]]), cache=cache)\n"
        "        ids.append(torch.argmax(logits[0, -1]).item())\n    return decode(ids[start:])",
    },
    "11.2": {
        "step by step": branch(),
        "a deep copy, cut": "import copy\n\n"
        + BRANCH
        + "    other = copy.deepcopy(chat)\n    other['stops'] = other['stops'][:turns]\n"
        "    stop = other['stops'][-1] if other['stops'] else 0\n    del other['ids'][stop:]\n"
        "    other['length'] = min(other['length'], len(other['ids']))\n    return other",
        "rows written into new slots": BRANCH
        + "    ids = list(chat['ids'])\n    stops = list(chat['stops'])\n    while len(stops) > turns:\n"
        "        stops.pop()\n    while len(ids) > (stops[-1] if stops else 0):\n        ids.pop()\n"
        "    kv = torch.zeros_like(chat['kv'])\n    length = chat['length'] if chat['length'] < len(ids) else len(ids)\n"
        "    kv[:, :, :, :length] = chat['kv'][:, :, :, :length]\n"
        "    return dict(ids=ids, stops=stops, length=length, kv=kv)",
    },
    "11.3": {
        "step by step": drift(),
        "startswith and zip": DRIFT
        + "    replies = [i for i, m in enumerate(messages) if m['role'] == 'assistant' and i + 1 < len(messages)]\n"
        "    for turn, i in enumerate(replies, 1):\n        held = render(messages[:i]) + messages[i]['content']\n"
        "        prompt = render(messages[: i + 2])\n        if not prompt.startswith(held):\n"
        "            n = 0\n            for a, b in zip(held, prompt):\n                if a != b:\n                    break\n"
        "                n += 1\n            return turn, n\n    return None",
        "commonprefix": "import os\n\n"
        + DRIFT
        + "    held, turn = None, 0\n    for i, m in enumerate(messages):\n        if m['role'] == 'user':\n"
        "            prompt = render(messages[: i + 1])\n            if held is not None:\n"
        "                n = len(os.path.commonprefix([held, prompt]))\n                if n < len(held):\n"
        "                    return turn, n\n        elif m['role'] == 'assistant':\n"
        "            held, turn = prompt + m['content'], turn + 1\n",
    },
    "11.4": {
        "step by step": fault(),
        "a copy, popped": FAULT + "    rest = dict(header)\n    stored = rest.pop('digest', None)\n"
        "    if stored is None or stored != digest(rest, rows):\n"
        "        return 'damaged'\n    if rest['version'] not in (1, 2):\n        return 'newer'\n"
        "    if rest.get('model', '') != model:\n        return 'model'\n"
        "    return None if rest.get('tokenizer', '') == tokenizer else 'tokenizer'",
        "four questions in a list": FAULT + "    rest = {k: header[k] for k in header if k != 'digest'}\n"
        "    wrong = {'damaged': digest(rest, rows) != header.get('digest'), 'newer': header['version'] >= 3,\n"
        "             'model': model != header.get('model'), 'tokenizer': tokenizer != header.get('tokenizer')}\n"
        "    return next((word for word in wrong if wrong[word]), None)",
    },
}
