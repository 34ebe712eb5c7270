"""Lesson 13: a linter's report as one HTML page that needs nothing else. Knows nothing about how it was found out.

Every text from the log is escaped: a log holds what strangers wrote.
"""

from html import escape

from kvcourse.prompts.lint_report import Group, Report, plural
from kvcourse.prompts.report import in_words

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1f2328; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { text-align: left; padding: .25rem .75rem .25rem 0; }
td.number, th.number { text-align: right; } section { border-top: 1px solid #d0d7de; margin-top: 2rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f8fa; padding: .75rem; margin: .25rem 0; }
mark { background: #ffcc4d; color: inherit; } .bar { display: flex; height: 1rem; max-width: 40rem; border: 1px solid #57606a; }
.cached { background: #66cc66; } .lost { background: #ffcc4d; } .computed { background: #fff; } li { margin: .25rem 0; }
"""


def as_page(report: Report, name: str) -> str:
    """The whole page. name: of the log."""
    faults = report.faults
    parts = [_head(report, name), *(_group(group, report.unit) for group in faults)]
    if not faults:
        parts.append(f"<p>{report.nothing_to_mend}</p>")
    parts += [f"<p>Note: {escape(note)}</p>" for note in report.notes]
    if report.skipped_lines:
        listed = "".join(f"<li>{escape(fault.reason)}</li>" for fault in report.skipped[:50])
        parts.append(f"<section><h2>Lines passed over: {report.skipped_lines:,}</h2><ul>{listed}</ul></section>")
    title = f"Prompt layout of {escape(name)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _head(report: Report, name: str) -> str:
    prompt, cached, lost = (report.total(one) for one in ("prompt_tokens", "cached_tokens", "tokens_lost"))
    rows = [
        ("requests", f"{report.requests:,}"), (f"prompt, {report.unit}", f"{prompt:,}"), ("cached", f"{cached:,}"),
        ("lost", f"{lost:,}"),
    ]  # fmt: skip
    cost = report.total("cost_lost")
    money, what = report.money(abs(cost)), "lost" if round(cost, 6) >= 0 else "all mended, more than now"
    rows.append((f"{what}, in base-price tokens", f"{abs(cost):,.0f}"))
    rows += [] if money is None else [(f"{what}, in money", f"{money:,.4g}")]
    table = "".join(f'<tr><th>{escape(label)}</th><td class="number">{value}</td></tr>' for label, value in rows)
    rules = report.rules
    sources = "; ".join(f"{source.title}, {source.date}" for source in rules.sources)
    about = f"Rules: {rules.title}, as of {rules.as_of}. {rules.note} Sources: {sources}."
    return f"<table>{table}</table>\n{_bar(prompt, cached, lost)}\n<p>{escape(about)}</p>"


def _bar(prompt: int, cached: int, lost: int) -> str:
    """Three widths, and the same in words for whoever sees none."""
    shares = {"cached": cached, "lost": lost, "computed": prompt - cached - lost}
    label = ", ".join(f"{name} {share / prompt:.1%}" for name, share in shares.items())
    inner = "".join(f'<span class="{name}" style="width:{100 * share / prompt:.2f}%"></span>' for name, share in shares.items())
    return f'<div class="bar" role="img" aria-label="{label}">{inner}</div><p>{label}</p>'


def _group(group: Group, unit: str) -> str:
    first, suggestion = group.first_difference, group.suggestion
    assert first is not None and suggestion is not None
    place = first.message if isinstance(first.message, str) else f"message {first.message}"
    where = f"line {first.request} against line {first.against}, {place}, character {first.character}"
    changes = "".join(f"<li>{escape(one)}</li>" for one in suggestion.changes)
    layout = "".join(f"<li>{escape(one)}</li>" for one in suggestion.layout)
    price = f"<p>Price: {escape(group.price_note)}</p>" if group.price_note else ""
    several = f" of {group.families:,} groups" if group.families > 1 else ""
    return (
        f"<section><h2>{escape(in_words(group.cause))}: {group.tokens_lost:,} tokens lost in "
        f"{group.requests:,} {plural('request', group.requests)}{several}</h2>"
        f"<p>{escape(first.why)} ({escape(where)}).</p>"
        f"<p>earlier</p>{_shown(first.before, first.theirs)}<p>here</p>{_shown(first.before, first.ours)}"
        f"<p>Change</p><ul>{changes}</ul>{price}<p>Layout</p><ol>{layout}</ol>"
        f"<p>Hit rate {suggestion.hit_rate:.1%} now, {suggestion.predicted_hit_rate:.1%} then.</p>"
        f"{_bar(group.prompt_tokens, group.cached_tokens, group.tokens_lost)}</section>"
    )


def _shown(before: str, text: str) -> str:
    return f"<pre>{escape(before)}<mark>{escape(text)}</mark></pre>"
