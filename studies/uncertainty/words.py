"""What a decision comes to, in sentences."""

from __future__ import annotations

import math

from studies.reports import tables
from studies.reports.tables import Table
from studies.statistics.intervals import Interval
from studies.uncertainty.decision import Decision
from studies.uncertainty.influence import Influence
from studies.uncertainty.inputs import called


def sentences(found: Decision) -> list[str]:
    """The verdict, what could change it, what it is worth to know, and what was taken for granted."""
    said = [_verdict(found), _what_could_change_it(found), _worth(found), _left_out(found), _granted(found)]
    return [sentence for sentence in said if sentence]


def chance(found: Interval) -> str:
    """`93 % (88 to 96 %)`."""
    assert found.estimate is not None
    estimate = _percent(found.estimate)
    if found.low is None or found.high is None or found.low == found.high:
        return f"{estimate} %"
    return f"{estimate} % ({_percent(found.low)} to {_percent(found.high)} %)"


def _percent(share: float) -> str:
    """Without decimals, but 100 and 0 only of all and none."""
    digits = 1 if 0 < share < 0.01 or 0.99 < share < 1 else 0
    return f"{share * 100:.{digits}f}"


def _verdict(found: Decision) -> str:
    (a, b), label = found.names, _label(found)
    if found.same() == 1:
        where = "in every world" if len(found.worlds) > 1 else "here"
        return f"{a} and {b} have the same {label} {where}: between them this decides nothing."
    settled = found.settled()
    first, second = found.first(), found.second()
    if found.certain:
        assert settled is not None
        return f"{found.names[settled]} is better: {_difference(found, settled)}. Nothing that differs between worlds is known of either."
    lead = settled if settled is not None else int((second.estimate or 0) > (first.estimate or 0))
    won = (first, second)[lead]
    tie = f" (the same in {tables.percent(found.same())})" if found.same() else ""
    said = f"{found.names[lead]} is better in {chance(won)} of {len(found.defined):,} worlds{tie}"
    end = f"{_difference(found, lead)}."
    if found.chosen is not None and found.chosen != lead:
        end += f" On average over the worlds, though, {found.names[found.chosen]} is: it is better by more where it is."
    return f"Open: {said}; {end}" if settled is None else f"{said}: {end}"


def _difference(found: Decision, lead: int) -> str:
    """How much less or more the leading one has, as in most worlds."""
    other = found.names[1 - lead]
    if found.ratios:
        a, b = found.defined.T if lead == 0 else found.defined.T[::-1]
        low, middle, high = ((math.exp(q) - 1) for q in _three((b / a).tolist()))
        one, two, three = (-x / (1 + x) for x in (high, middle, low))  # of a / b
        if found.certain:
            return f"{_label(found)} {_signed(two)} against {other}"
        return f"{_label(found)} {_signed(two)} against {other} in the middle of worlds, {_signed(one)} to {_signed(three)} in nine of ten"
    quantiles = found.quantiles()["difference"]
    sign = 1 if lead == 0 else -1
    ends = sorted(sign * (quantiles[name] or 0.0) for name in ("p5", "p95"))
    middle = sign * (quantiles["p50"] or 0.0)
    if found.certain:
        return f"{_label(found)} {tables.number(middle)} more than {other}"
    return f"{_label(found)} {middle:+.3g} against {other} in the middle of worlds, {ends[0]:+.3g} to {ends[1]:+.3g} in nine of ten"


def _three(ratios: list[float]) -> tuple[float, float, float]:
    import numpy as np

    low, middle, high = np.percentile(np.log(ratios), [5, 50, 95]).tolist()
    return low, middle, high


def _signed(share: float) -> str:
    return tables.percent(share, signed=True)


def _label(found: Decision) -> str:
    return tables.label(found.metric)


def _what_could_change_it(found: Decision) -> str:
    known = found.influences
    if found.same() == 1 or found.certain:
        return ""
    if known.refused:
        return f"What it hangs on is not said: {known.refused}."
    seen = [one for one in known.ranked if one.seen]
    turning = [one for one in seen if one.changes > 0]
    chosen, other = (found.names[k] for k in (found.chosen or 0, 1 - (found.chosen or 0)))
    if turning:
        best = turning[0]
        said = (
            f"{_named(best)} could change it most: {chosen} is better on average, but knowing this exactly would speak for {other} in "
            f"{tables.percent(best.changes)} of worlds ({tables.percent(best.share.estimate)} of the spread). To know it, "
            f"{best.inputs[0].measure}."
        )
    elif seen:
        largest = max(seen, key=lambda one: one.share.estimate or 0.0)
        said = (
            f"No single measurement would change it: {_named(largest)} matters most ({tables.percent(largest.share.estimate)} of the "
            f"spread), and at none of its likely values is {other} better on average."
        )
    elif known.ranked:
        said = "None of the uncertain inputs is seen to matter."
    else:
        said = ""
    if known.requests is not None and known.requests >= 0.01 and known.ranked:
        said += f" The draw of requests makes {tables.percent(known.requests)} of the spread, which only more requests would average out."
    return said.strip()


def _named(one: Influence) -> str:
    return f"{one.group[:1].upper()}{one.group[1:]}"


def _worth(found: Decision) -> str:
    known = found.influences
    if found.same() == 1 or found.certain or not known.worth:
        return ""
    best = max((one.worth for one in known.ranked), default=0.0)
    said = f"Measuring all of them exactly would make the choice {_amount(found, known.worth)} better on average"
    if best:
        one = max(known.ranked, key=lambda one: one.worth)
        return f"{said}, {one.group} alone {_amount(found, best)}."
    return f"{said}."


def _amount(found: Decision, worth: float) -> str:
    return f"{math.expm1(worth) * 100:.2g} %" if found.ratios else f"{worth:.3g} ({_label(found)})"


def _left_out(found: Decision) -> str:
    missing = len(found.values) - len(found.defined)
    return (
        f"In {missing} of {len(found.values):,} worlds one of them has no such figure; these are left out."
        if missing
        else ""
    )


def _granted(found: Decision) -> str:
    parts = dict.fromkeys(one.part for one in found.inputs.unstated if one.ranged)
    same = "" if found.requests_differ else "Another seed changes nothing: requests are the same in every world. "
    if not parts:
        return same.strip()
    named = ", ".join(part if called(part) == part.replace("-", " ") else f"{called(part)} ({part})" for part in parts)
    return f"{same}Taken as certain, for want of a stated error: {named}. --range NAME=LOW..HIGH gives one."


def world_table(found: Decision) -> Table:
    """What was compared, a row a scenario."""
    quantiles = found.quantiles()
    rows = [
        (
            name,
            tables.number(float(found.frozen[0, k])),
            *(tables.number(quantiles[key][level]) for level in ("p5", "p50", "p95")),
            "–" if found.certain and found.same() == 1 else chance(part),
        )
        for k, (name, key, part) in enumerate(
            zip(found.names, ("first", "second"), (found.first(), found.second()), strict=True)
        )
    ]
    head = (_label(found), "as assumed", "5 %", "50 %", "95 % of worlds", "better in")
    title = f"{len(found.defined):,} worlds" if len(found.worlds) > 1 else "One world: nothing differs between worlds"
    return Table(title, head, rows)


def influence_table(found: Decision) -> Table | None:
    """What the decision hangs on, a row a group of inputs; None where nothing is uncertain."""
    known = found.influences
    if not known.ranked:
        return None
    seen = [one for one in known.ranked if one.seen]
    rows = [
        (
            one.group,
            f"{tables.percent(one.share.estimate)} ({(one.share.low or 0) * 100:.0f} to {(one.share.high or 0) * 100:.0f})",
            tables.percent(one.changes),
            _amount(found, one.worth) if one.worth else "0",
            "; ".join(dict.fromkeys(each.spread.words() for each in one.inputs)),
        )
        for one in seen
    ]
    blank = (tables.DASH, tables.DASH, "")
    if known.requests is not None:
        rows.append(("draw of requests", tables.percent(known.requests), *blank))
    rows.append(("the rest", tables.percent(known.rest), *blank))
    notes = [
        "Of the spread of the difference. Turns it: worlds in which knowing it exactly would turn the choice of what is better on average. Worth: what that gains "
        "on average. May be: times what is assumed, in nine of ten worlds; or bytes that neither weights nor KV get."
    ]
    notes += [f"{each.key}: {each.basis}" for one in seen for each in one.inputs]
    if unseen := [one.group for one in known.ranked if not one.seen]:
        notes.append(f"Not seen to matter: {', '.join(unseen)}")
    head = ("", "of the spread", "turns it in", "worth", "may be")
    return Table("What it hangs on", head, rows, "\n".join(dict.fromkeys(notes)))


def unstated_table(found: Decision) -> Table | None:
    """What is the same in every world; None where nothing is."""
    if not found.inputs.unstated:
        return None
    of: dict[tuple[str, str], list[str]] = {}
    for one in found.inputs.unstated:
        of.setdefault((one.part, one.why), []).append(one.of)
    rows = [(f"{called(part)}: {why}", ", ".join(dict.fromkeys(things))) for (part, why), things in of.items()]
    return Table("Without a stated uncertainty: the same in every world", ("", "of"), rows)
