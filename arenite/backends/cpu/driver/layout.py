"""Where things lie in the memory that Python and the native driver share: byte offsets.

`Run` is one bound table, `Team` the one team of the process, `Worker` a thread's record, `Stamps`
where a profiled run writes. What different threads write lies on different 64-byte lines.

    Run     what a worker reads | error, stamps | what the caller alone uses | its worker record
    Team    gate | block | seq | completed | sleepers | waiters | settings | records of workers
"""

from __future__ import annotations

LINE_NBYTES = 64


class Run:
    """One bound table: everything a run needs, by address."""

    TABLE = 0
    REGISTERS = 8
    INSTRUCTIONS = 16
    WAITS = 24
    SYNCS = 32
    IMPORTS = 40
    TEAM = 48
    N_THREADS = 56  # the caller included

    ERROR = 64  # site << 32 | code; CANCELLED; 0 when all is well
    STAMPS = 72  # for the profiled driver

    EPOCH = 128  # u32, raised by every parallel block, kept from run to run
    RESUME = 132  # u32, entry to begin at
    REFRESHED = 136  # u32, epoch at which all sync words were last set
    REFRESH_AFTER = 140  # u32, epochs
    N_SYNCS = 144
    POLL_CLOCKS = 152
    NEXT_POLL = 160
    N_POLLS = 168
    BIND_FIRST = 176  # u32, instructions to run before the first entry
    BIND_COUNT = 180  # u32
    KEEP_GIL = 184
    SEGMENT = 192  # u32, the SEGMENT entry that left
    INTERRUPTED = 196  # u32, an exception is set and the GIL is held
    THREAD_STATE = 200
    BUDGET_NS = 224  # estimated work left until the clock is read

    WORKER = 256  # the caller's record when it runs alone
    NBYTES = 384


class Worker:
    """A thread's record; kernels get a pointer to it and know its first two words."""

    INDEX = 0
    ERROR = 8  # address of the word a kernel sets
    WORD = 16  # that word, for a thread of the team
    TEAM = 24
    N_TILES = 32  # tiles run so far
    REST_NS = 40  # how long it is to stay away; 0: not at all
    N_RESTS = 48  # how often it has
    CPU = 56  # that it is pinned to; the caller's when that was last looked at
    ASLEEP = 64  # u32, futex: AWAKE, AT_GATE, IN_RUN or RESTING
    AWAY = 68  # u32, 1: it rests, or has rested and is to try its CPU before it works again
    CPU_CLOCK = 72  # the system's name for the clock of its processor time
    CPU_NS = 80  # what that said when the caller began to watch
    FREE_SINCE = 88  # by the driver's clock: when it last rested, or held others up before this
    TIMEOUT = 96  # two i64: seconds, nanoseconds of its last rest
    HELD_AT = 112  # when it was last seen to hold others up
    THREAD = 120  # pthread_t
    NBYTES = 128

    AWAKE = 0
    AT_GATE = 1
    IN_RUN = 2
    RESTING = 3


class Team:
    """The control block."""

    GATE = 0  # times opened << 33 | open << 32 | threads invited << 16 | workers inside
    BLOCK = 136  # epoch << 32 | entry; in the line of SEQ, for who sees that reads this too
    SEQ = 128  # raised by every block, over all runs
    COMPLETED = 192  # SHARED launches of the block that are complete
    SLEEPERS = 256  # u32, asleep at the gate, or resting
    WAITERS = 320  # u32, asleep inside a run
    STOP = 384
    SPIN_CLOCKS = 392
    YIELD_CLOCKS = 400
    RUN = 408
    IMPORTS = 416
    NS_SCALE = 424  # nanoseconds a clock, times 2**16
    FIRST_LOOK = 432  # two i64: how long the caller sleeps in a run before it begins to watch
    NEXT_LOOK = 448  # and afterwards
    TIME = 464  # two i64, the caller's
    PLACE_AT = 480  # by the driver's clock: when the caller's CPU is looked at next
    PLACE_CLOCKS = 488  # between two looks
    N_THREADS = 496  # that there are, the caller included
    TRY_CLOCKS = 504  # how long a CPU is tried
    N_AWAY = 324  # u32, workers that rest, or try their CPU
    ALONE = 328  # the caller's: 1 where all it could work with are away
    CPU_SET = 512  # zeros, but for a moment
    WORKERS = 640

    CPU_SET_NBYTES = 128

    OPENED_SHIFT = 33
    OPEN = 1 << 32
    INVITED_SHIFT = 16
    COUNT_MASK = 0xFFFF


class Imports:
    """Addresses of the functions native code may call."""

    SYSCALL = 0
    SAVE_THREAD = 8
    RESTORE_THREAD = 16
    CHECK_SIGNALS = 24
    ERROR_OCCURRED = 32
    NEW_INTEGER = 40
    GET_CPU = 48
    SET_AFFINITY = 56
    NBYTES = 64


class Guard:
    """What the handler of SIGBUS knows: a head, then a record for each guarded file."""

    N_RECORDS = 0
    SYSCALL = 8
    SIGACTION = 16
    RAISE = 24
    PAGE_MASK = 32
    N_PASSED = 40  # signals left to the handler that was there before
    BEFORE = 64  # that handler's `struct sigaction`
    DEFAULT = 256  # the system's own: zeros
    RECORDS = 512

    START = 0  # in a record: addresses of the mapping, whole pages
    END = 8
    ACTIVE = 16  # runs that read it now
    FAULTS = 24  # how often it was not there
    RECORD_NBYTES = 32


class Quick:
    """What a quick entry knows: a head, then for each array what it must be like."""

    N_ARRAYS = 0
    TYPE = 8  # of an array object
    ENTRY = 16  # the function that runs
    RUN = 24
    IMPORTS = 32
    TEAM = 40
    N_THREADS = 48
    N_INPUTS = 56  # the first arrays are read, the others written
    SIZES = 64  # bytes of each array, then the specs

    DTYPE = 0  # in a spec: the object
    TARGET = 8  # where the array's address goes
    RANK = 16
    SHAPE = 24  # a word an axis


class ArrayObject:
    """NumPy's array objects, behind the head that all objects of Python have."""

    TYPE = object.__basicsize__ - 8
    DATA = object.__basicsize__
    RANK = DATA + 8  # i32
    SHAPE = DATA + 16
    DTYPE = DATA + 40
    FLAGS = DATA + 48  # i32

    IN_ORDER = 0x101  # elements follow each other in C order, and are aligned
    WRITEABLE = 0x400


class Stamps:
    """A header, then for each worker a region: a line with the count, then records."""

    STRIDE = 0
    CAPACITY = 8
    REGIONS = 64
    RECORDS = 64  # in a region
    RECORD_NBYTES = 32  # tick u32, zero u32, tile i64, begin i64, end i64


#: What `run` returns.
END, SEGMENT, ERROR, CANCELLED = range(4)
#: What a quick entry returns instead: arrays are not as they must be, and nothing was run.
NOT_FITTING = -1

#: The error word of a cancelled run; no site and no code are this big.
CANCELLED_WORD = -1
#: Claims of a launch that a sync word can count.
MAX_CLAIMS = 0x3FF


class Sync:
    """The word of a launch: epoch << 32 | claimed from below << 20 | unclaimed << 10 | unfinished.

    Unclaimed tiles are those from `below` on. The launch is complete when none is unfinished.
    """

    UNCLAIMED_SHIFT = 10
    BELOW_SHIFT = 20
