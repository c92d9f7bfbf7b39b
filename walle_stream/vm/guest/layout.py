"""Byte layout of the buffers between host and guest, version 1.

Two shared buffers per VM, all integers little-endian.

**Inbox, host to guest**::

    u64   order: 1 run the groups, 2 write the last result again, 3 take an answer,
          4 send the next part of a request, 0 leave
    u64   number of the order, ascending; written last, and a new number gives the order
    ...   marshal version 4 of the device groups:
          [(device_id, {key: value bytes}, [(position, clock_ms, page), ...]), ...]
          page: (page_id, page_instance, cause, enter_time_ms | None, None, [row, ...]);
                 an open page is (..., (count, begin, end), rows): its first count rows
                 in marshal version 2 end to end, the last row from begin to end;
                 a reply of the cloud is a list: [call, service, error, JSON bytes],
                 and a message is another list: [sender, number, JSON bytes]
          row:  (id, kind, event_time_ms, ingest_time_ms, contents | None)

The host writes plain values only, so the guest may unmarshal them.

**Outbox, guest to host**::

    4s    magic "WVM1"
    u32   status: 1 complete, 2 the outbox is too small for the result, 3 a run has a
          request, 4 the run wants the rest of the answer
    u64   number of the completed order: the completion mark, written last
    u64   count of control words W
    u64   bytes of the body B
    W*u32 control words
    B     body: all texts and values, end to end, in the order of their words

The control words describe the parts of the body. For each group of the call, for
each of its runs::

    3
    1, emits, (feature bytes, encoding bytes) * emits, lines, (level, bytes) * lines
    2, as 1, then calls, (service bytes, question bytes) * calls
    0, 0, lines, (level, bytes) * lines, class name bytes, message bytes

Code 3 is a success without output, code 2 a success with calls to the cloud, code 1
any other success, and code 0 a failure. A 4 precedes the words of a run that returned
a value, which is ignored. Then for each group::

    changes, (key bytes, value bytes | 0xFFFFFFFF for "deleted") * changes

A run may send the host a request before the call ends. The status is 3. The bytes of
the request still to come replace the count of control words, and a part of the
request follows. The host orders 4 until it has the whole request. Behind an answer's
order 3 are::

    u64   bytes of the answer still to come
    u64   bytes of this part
    u64   0 for an answer, 1 for an error's text (UTF-8)
    ...   this part

The host reads lengths and cuts; it never unmarshals or unpickles a guest's bytes.
Features, encodings and values stay opaque bytes. Names, messages and lines are
UTF-8. The level of a line is 0 info, 1 warning, 2 error.
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
"""Header of a part of an answer: bytes to come, bytes of the part, whether it failed."""

HEADER: Final = struct.Struct("<4sIQQQ")
"""The outbox's header: magic, status, number, control words, body bytes."""

NUMBER: Final = 1
"""Index of the number in an inbox or outbox read as u64. Both sides read and write it
as a whole, after everything else. x86-64 keeps this order; on other machines each side
waits for the doorbell before it looks."""

MAGIC: Final = b"WVM1"
"""First bytes of a guest's header; the digit is the layout's version."""

# Statuses.
STATUS_COMPLETE: Final = 1
STATUS_TOO_SMALL: Final = 2
STATUS_ASKS: Final = 3
STATUS_NEXT: Final = 4

# First words of a run; RUN_RETURNED precedes the first word of a run that returned a value.
RUN_FAILED: Final = 0
RUN_DONE: Final = 1
RUN_CALLED: Final = 2
RUN_SILENT: Final = 3
RUN_RETURNED: Final = 4

DELETED: Final = 0xFFFF_FFFF
"""Value length of a state entry that was deleted."""

REPEATED: Final = 1 << 62
"""Bit in the number of a run that its VM repeats within a call, so that the watchdog
takes it for another run."""

RING: Final = (1).to_bytes(8, "little")
"""Bytes that ring a doorbell when written to its descriptor."""

LONGEST_PAUSE: Final = 15
"""Largest number of orders without spinning after spinning in vain."""

WORD_BYTES: Final = 4
"""Size of a control word."""

FEW_WORDS: Final = tuple(struct.Struct(f"<{count}I") for count in range(64))
"""Structs for small numbers of control words, so that small results need no lookup."""

GATHERED_MAX_BYTES: Final = 64 * 1024
"""A larger body is written part by part and cut in place, so that each side copies
each byte once. A smaller body is first copied as a whole, which is faster than
handling its parts one by one."""
