"""Evaluates the repetitions of compare_bench.py: rows with ratios paired within a repetition, checks, and the figures in
the JSON of `lockstep bench`."""
import dataclasses
import statistics

RATIO_REPETITIONS = 3  # a ratio needs at least so many
WIDTH = 50  # of a row's name
SCALES = dict(ms=1e3, us=1e6)
DIGITS = dict(ms=2, us=1)


@dataclasses.dataclass
class Row:
    """One measurement on both sides, in seconds, for each repetition."""
    what: str
    unit: str  # of the printed figures: ms or us
    repetitions: list = dataclasses.field(default_factory=list)  # (lockstep's, Python's)

    @property
    def sides(self):
        """Returns [lockstep's seconds, Python's seconds]."""
        return [list(side) for side in zip(*self.repetitions)]


@dataclasses.dataclass
class Check:
    """The number of wrong elements or results in all repetitions."""
    what: str
    lockstep: int = 0
    python: int = 0
    wire_bytes: int | None = None  # sent by a process of lockstep for a sum

    @property
    def ok(self):
        return self.lockstep == 0 and self.python == 0


def quartiles(values):
    """Returns median and quartiles, with linear interpolation as in lockstep."""
    if len(values) == 1:
        return dict(median=values[0], low=values[0], high=values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return dict(median=middle, low=low, high=high)


def paired_ratio(row):
    """Returns the quartiles of lockstep / Python within a repetition; None for too few repetitions."""
    ratios = [lockstep / python for lockstep, python in row.repetitions]
    return quartiles(ratios) if len(ratios) >= RATIO_REPETITIONS else None


def faster(ratio):
    """Returns who is faster in the middle half of the repetitions; None where that includes 1."""
    if ratio is None or ratio["low"] <= 1 <= ratio["high"]:
        return None
    return "lockstep" if ratio["high"] < 1 else "Python"


def sum_seconds(ranks):
    """Returns the seconds of one sum as lockstep computes them: the slowest rank of each sum, the median of the sums of a
    repetition, the median of the repetitions. ranks: for each rank and repetition, the seconds of each sum."""
    return statistics.median(statistics.median(map(max, zip(*repetition, strict=True)))
                             for repetition in zip(*ranks, strict=True))


def taken(parts):
    """Returns the rows that have figures."""
    return [row for part in parts for row in part.rows if row.repetitions]


def idle_share(bench):
    """Returns the number of cores that Python used while lockstep ran."""
    return bench.pythons_cpu_seconds / bench.seconds if bench.seconds else 0.0


# ---- lockstep's JSON


class MissingFigure(Exception):
    pass


def figures(result, table, keys, **values):
    """Returns the numbers under `keys` in the row of `table` that has these values. Throws MissingFigure."""
    rows = [row for each in result["tables"] if each["name"] == table for row in each["rows"]]
    where = f"lockstep bench {result['bench']}, table {table}"
    for row in rows:
        if all(row.get(key) == value for key, value in values.items()):
            lacking = [key for key in keys if not isinstance(row.get(key), (int, float))]
            if lacking:
                raise MissingFigure(f"{where}: no number under {', '.join(lacking)} in {row}")
            return [row[key] for key in keys]
    wanted = ", ".join(f"{key} {value}" for key, value in values.items())
    found = "; ".join(", ".join(f"{key} {row.get(key)}" for key in values) for row in rows) or "no row at all"
    raise MissingFigure(f"{where}: no row has {wanted}; there is {found}")


def failed_checks(result):
    return sum(not check["ok"] for check in result["checks"])


# ---- printing


def heading():
    return ("# lockstep, Python: medians; ratio: lockstep / Python within a repetition, median (quartiles);\n"
            "# faster: in the middle half of the repetitions\n#\n"
            f"{'# what':<{WIDTH}} {'unit':>4} {'lockstep':>10} {'Python':>10} {'ratio':>7}  {'(quartiles)':<15}  faster")


def line(row):
    scale = SCALES[row.unit]
    sides = " ".join(f"{scale * statistics.median(side):>10.{DIGITS[row.unit]}f}" for side in row.sides)
    ratio = paired_ratio(row)
    if ratio is None:
        return f"{row.what:<{WIDTH}} {row.unit:>4} {sides} {'-':>7}"
    quartile_range = f"({ratio['low']:.3f} - {ratio['high']:.3f})"
    return f"{row.what:<{WIDTH}} {row.unit:>4} {sides} {ratio['median']:>7.3f}  {quartile_range:<15}  {faster(ratio) or '-'}"


def check_line(check):
    sent = "" if check.wire_bytes is None else f"; a process of lockstep sends {check.wire_bytes:,} B"
    return (f"# check {check.what}: {'OK' if check.ok else 'FAILED'} "
            f"({check.lockstep} wrong in lockstep, {check.python} in Python){sent}")


def summary(rows):
    """Returns how often each side is faster."""
    winners = [faster(ratio) for ratio in map(paired_ratio, rows) if ratio]
    if not winners:
        return f"# a ratio needs {RATIO_REPETITIONS} repetitions (--repeat)"
    lockstep, python = winners.count("lockstep"), winners.count("Python")
    return (f"# of {len(winners)} measurements lockstep is faster in {lockstep}, Python in {python}; "
            f"{len(winners) - lockstep - python} cannot be told apart")


def as_json(row):
    lockstep, python = row.sides
    return dict(what=row.what, unit="s", lockstep=quartiles(lockstep), python=quartiles(python), ratio=paired_ratio(row),
                repetitions=dict(lockstep=lockstep, python=python))
