"""Byte layout of what crosses between host and guest, version 1.

Two shared buffers per VM, all integers little-endian.

**Inbox, host to guest**::

    u64   order: 1 run the groups, 2 write the last result again, 3 take an answer,
          4 go on asking, 0 leave
    u64   number of the order, ascending: written last, a new one is the order
    ...   marshal version 4 of the device groups:
          [(device_id, {key: value bytes}, [(position, clock_ms, page), ...]), ...]
          page: (page_id, page_instance, cause, enter_time_ms | None, None, [row, ...]);
                 of an open page (..., (count, begin, end), rows): its first count rows
                 in marshal version 2 end to end, the last one from begin to end;
                 for a reply of the cloud a list: [call, service, error, JSON bytes],
                 for a message of it another one: [sender, number, JSON bytes]
          row:  (id, kind, event_time_ms, ingest_time_ms, contents | None)

Only plain values, written by the host, so the guest may unmarshal them.

**Outbox, guest to host**::

    4s    magic "WVM1"
    u32   status: 1 complete, 2 the outbox is too small for what follows, 3 a run asks
          the host, 4 it wants the rest of the answer
    u64   number of the order that was done: the completion mark, written last
    u64   count of control words W
    u64   bytes of the body B
    W*u32 control words
    B     body: all texts and values, end to end, in the order of their words

The control words say how the body is cut. For each group of the call, for each
of its runs::

    3
    1, emits, (feature bytes, encoding bytes) * emits, lines, (level, bytes) * lines
    2, as 1, then calls, (service bytes, question bytes) * calls
    0, 0, lines, (level, bytes) * lines, class name bytes, message bytes

the first for a run that succeeded without a word, the third for one that calls the
cloud, the second for any other that succeeded, the last for one that failed; the
words of a run that returned a value, which nobody takes, stand behind a 4; then
per group::

    changes, (key bytes, value bytes | 0xFFFFFFFF for "deleted") * changes

A run may ask the host something before the call ends: status 3, in the place of
the control words' count the bytes of the request that are still to come, then a
part of it; the host orders 4 until it has all. An answer's order 3 is followed
by::

    u64   bytes of the answer that are still to come
    u64   bytes of this part
    u64   0 for an answer, 1 for an error's text (UTF-8)
    ...   this part

The host reads lengths and cuts; it never unmarshals or unpickles what a guest
wrote. Features, encodings and values stay opaque bytes; names, messages and
lines are UTF-8. The level of a line is 0 info, 1 warning, 2 error.
"""

import struct
from typing import Final

INBOX: Final = struct.Struct("<QQ")
"""The inbox's header: order, number."""

# Orders.
LEAVE: Final = 0
CALL: Final = 1
PENDING: Final = 2
ANSWER: Final = 3
MORE: Final = 4

ANSWER_HEAD: Final = struct.Struct("<QQQ")
"""Before a part of an answer: bytes to come, bytes of the part, whether it failed."""

HEADER: Final = struct.Struct("<4sIQQQ")
"""The outbox's header: magic, status, number, control words, body bytes."""

NUMBER: Final = 1
"""Where an inbox or outbox that is read as u64 has its number: both sides read
and write it as a whole, after everything else (x86-64 keeps that order; where it
is not kept, neither side looks before a doorbell rang)."""

MAGIC: Final = b"WVM1"
"""First bytes of a header that a guest wrote; the digit is the layout's version."""

# Statuses.
STATUS_COMPLETE: Final = 1
STATUS_TOO_SMALL: Final = 2
STATUS_ASKS: Final = 3
STATUS_NEXT: Final = 4

# First words of a run; the last one stands before those of a run that returned a value.
RUN_FAILED: Final = 0
RUN_DONE: Final = 1
RUN_CALLED: Final = 2
RUN_SILENT: Final = 3
RUN_RETURNED: Final = 4

DELETED: Final = 0xFFFF_FFFF
"""Value length of a state entry that was deleted."""

REPEATED: Final = 1 << 62
"""Set in the number of a run that its VM makes for the second time within a call, so
that who watches takes it for another one."""

RING: Final = (1).to_bytes(8, "little")
"""What is written to a doorbell's descriptor to ring it."""

LONGEST_PAUSE: Final = 15
"""After a look in vain, at most this many orders are waited for asleep before the next look."""

WORD_BYTES: Final = 4
"""Size of a control word."""

FEW_WORDS: Final = tuple(struct.Struct(f"<{count}I") for count in range(64))
"""How a fixed number of control words is packed: small results must not pay for a lookup."""

GATHERED_MAX_BYTES: Final = 64 * 1024
"""A larger body is written part by part and cut where it lies, each byte copied
once on either side; a smaller one is copied whole first, which takes less than to
handle its parts one by one."""
