"""What is needed of a Swift source to change it, without a parser: where its code is, and in which brackets."""
import re

OPENING = re.compile(r'//|/\*|#*"""|#*"')


def code(text):
    """The text with blanks in place of comments and of all between quotation marks; each character keeps its place."""
    characters = list(text)
    position = 0
    while found := OPENING.search(text, position):
        if found[0].startswith("/"):
            first, end = found.start(), "\n" if found[0] == "//" else "*/"
            position = last = text.index(end, found.end())
        else:
            first, position = found.end(), end_of_string(text, found)
            last = position - len(found[0])
        for index in range(first, last):
            if characters[index] != "\n":
                characters[index] = " "
    return "".join(characters).replace("*/", "  ")


def end_of_string(text, opening):
    """Where a string literal ends, quotation marks included; strings and parentheses within interpolations are passed over."""
    hashes = opening[0].rstrip('"')
    closing, escape = opening[0][::-1], "\\" + hashes
    position = opening.end()
    while not text.startswith(closing, position):
        if not text.startswith(escape, position):
            position += 1
            continue
        position += len(escape) + 1
        depth = 1 if text[position - 1] == "(" else 0
        while depth:
            if found := OPENING.match(text, position):
                position = end_of_string(text, found)
                continue
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            position += 1
    return position + len(closing)


def brackets(code):
    """For each line, the innermost bracket that is open where it begins; empty outside of all."""
    open_brackets, innermost = [], []
    for line in code.split("\n"):
        innermost.append(open_brackets[-1] if open_brackets else "")
        for character in line:
            if character in "([{":
                open_brackets.append(character)
            elif character in ")]}":
                open_brackets.pop()
    return innermost


def is_balanced(code):
    """Whether the brackets of a part of a source are all opened and closed within it."""
    depth = 0
    for character in code:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def clauses(code, start, end):
    """The clauses of a condition from `start` on, each as where it begins and ends.

    Commas separate them, and the last one ends before `end` ("{" or "else"). None if there is no `end` in these brackets.
    """
    found, depth, first = [], 0, start
    for position in range(start, len(code)):
        if depth == 0 and code.startswith(end, position) and not (end.isalpha() and code[position - 1].isalnum()):
            found.append((first, position))
            return [trimmed(code, *clause) for clause in found]
        if depth == 0 and code[position] == ",":
            found.append((first, position))
            first = position + 1
        depth += (code[position] in "([{") - (code[position] in ")]}")
        if depth < 0:
            return []
    return []


def trimmed(code, start, end):
    """A part of the code without the blanks around it."""
    part = code[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
