#!/usr/bin/env python3
"""Checks the documents: each relative link leads to a file, each anchor to a heading. usage: documents.py SOURCE_FOLDER | --self-test"""
import pathlib
import re
import sys
import tempfile

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.M)


def anchors_of(text):
    """Anchors as the usual viewers derive them from headings."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def faults_of(document):
    faults = []
    text = document.read_text(encoding="utf-8")
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists():
            faults.append(f"{document}: {link} leads nowhere")
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text(encoding="utf-8")):
            faults.append(f"{document}: {link} names no heading of {target.name}")
    return faults


def check(root):
    documents = sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md")) + sorted((root / "examples").rglob("*.md"))
    if not documents:
        return [f"{root}: no documents"]
    return [fault for document in documents for fault in faults_of(document)]


def self_test():
    cases = [("[a](b.md)", False), ("[a](#none)", False), ("# Some `code` here\n[a](#some-code-here)", True), ("[a](x.md)", True),
             ("[a](x.md#title)", True), ("[a](x.md#other)", False), ("[a](https://example.org/x)", True), ("```\n[a](b.md)\n```", True)]
    for text, right in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "x.md").write_text("# Title\n")
            (root / "y.md").write_text(text)
            if bool(check(root)) == right:
                return f"self-test: {text!r}"
    return None


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    sys.exit("\n".join(check(pathlib.Path(sys.argv[1]))) or None)


if __name__ == "__main__":
    main()
