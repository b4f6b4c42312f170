"""What the turns of compare_bench.py say: rows with ratios paired within a turn, checks, and where lockstep's figures stand
in the JSON of `lockstep bench`."""
import dataclasses
import statistics

RATIO_TURNS = 3  # that a ratio takes at least
WIDTH = 50  # of a row's name
SCALES = dict(ms=1e3, us=1e6)
DIGITS = dict(ms=2, us=1)


@dataclasses.dataclass
class Row:
    """One measurement on both sides, in seconds, turn by turn."""
    what: str
    unit: str  # in which it is printed: ms or us
    turns: list = dataclasses.field(default_factory=list)  # (lockstep's, Python's)

    @property
    def sides(self):
        """lockstep's turns and Python's."""
        return [list(side) for side in zip(*self.turns)]


@dataclasses.dataclass
class Check:
    """Wrong elements or results of all turns together."""
    what: str
    lockstep: int = 0
    python: int = 0

    @property
    def ok(self):
        return self.lockstep == 0 and self.python == 0


def quartiles(values):
    """Linear interpolation between neighbours, as lockstep's."""
    if len(values) == 1:
        return dict(median=values[0], low=values[0], high=values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return dict(median=middle, low=low, high=high)


def paired_ratio(row):
    """lockstep / Python, turn by turn: what slows down a whole turn does not count. None of too few turns."""
    ratios = [ours / theirs for ours, theirs in row.turns]
    return quartiles(ratios) if len(ratios) >= RATIO_TURNS else None


def faster(ratio):
    """Whose side the middle half of the turns is on; None where it holds 1."""
    if ratio is None or ratio["low"] <= 1 <= ratio["high"]:
        return None
    return "lockstep" if ratio["high"] < 1 else "Python"


def sum_seconds(ranks):
    """Of one sum, as lockstep takes it: of each sum the slowest rank's seconds, of a turn's sums the median, and of the
    turns' medians the median. ranks: for each of them, for each turn, the seconds of each sum."""
    return statistics.median(statistics.median(map(max, zip(*turn, strict=True))) for turn in zip(*ranks, strict=True))


def taken(parts):
    """Rows that have had a turn."""
    return [row for part in parts for row in part.rows if row.turns]


def idle_share(bench):
    """Of a core, by all of Python together while it was lockstep's turn."""
    return bench.rivals_cpu_seconds / bench.seconds if bench.seconds else 0.0


# ---- what lockstep wrote


class MissingFigure(Exception):
    pass


def figures(result, table, keys, **values):
    """What stands under these keys in the row that has these values, of a JSON of `lockstep bench`."""
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
    return (f"# lockstep, Python: medians over the turns; ratio: lockstep / Python within a turn, median (quartiles);\n"
            f"# faster: who is, in the middle half of the turns\n#\n"
            f"{'# what':<{WIDTH}} {'unit':>4} {'lockstep':>10} {'Python':>10} {'ratio':>7}  {'(quartiles)':<15}  faster")


def line(row):
    scale = SCALES[row.unit]
    sides = " ".join(f"{scale * statistics.median(side):>10.{DIGITS[row.unit]}f}" for side in row.sides)
    ratio = paired_ratio(row)
    if ratio is None:
        return f"{row.what:<{WIDTH}} {row.unit:>4} {sides} {'-':>7}"
    spread = f"({ratio['low']:.3f} - {ratio['high']:.3f})"
    return f"{row.what:<{WIDTH}} {row.unit:>4} {sides} {ratio['median']:>7.3f}  {spread:<15}  {faster(ratio) or '-'}"


def check_line(check):
    return (f"# check {check.what}: {'OK' if check.ok else 'FAILED'} "
            f"({check.lockstep} wrong in lockstep, {check.python} in Python)")


def summary(rows):
    """Derived from the ratios."""
    winners = [faster(ratio) for ratio in map(paired_ratio, rows) if ratio]
    if not winners:
        return f"# no ratio from fewer than {RATIO_TURNS} turns (--turns)"
    ours, theirs = winners.count("lockstep"), winners.count("Python")
    return (f"# of {len(winners)} measurements lockstep is the faster in {ours}, Python in {theirs}; "
            f"{len(winners) - ours - theirs} cannot be told apart")


def as_json(row):
    ours, theirs = row.sides
    return dict(what=row.what, unit="s", lockstep=quartiles(ours), python=quartiles(theirs), ratio=paired_ratio(row),
                turns=dict(lockstep=ours, python=theirs))
