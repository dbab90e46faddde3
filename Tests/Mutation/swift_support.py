"""What is added to a module that contains changes: how it knows which one is active, and an operator for each changed one."""

# What it becomes, its precedence, and the type of its operands.
OPERATORS = {
    "<": ("<=", "ComparisonPrecedence", "Comparable"),
    "<=": ("<", "ComparisonPrecedence", "Comparable"),
    ">": (">=", "ComparisonPrecedence", "Comparable"),
    ">=": (">", "ComparisonPrecedence", "Comparable"),
    "==": ("!=", "ComparisonPrecedence", "Equatable"),
    "!=": ("==", "ComparisonPrecedence", "Equatable"),
    "&&": ("||", "LogicalConjunctionPrecedence", "Bool"),
    "||": ("&&", "LogicalDisjunctionPrecedence", "Bool"),
    "+": ("-", "AdditionPrecedence", "AdditiveArithmetic"),
    "-": ("+", "AdditionPrecedence", "AdditiveArithmetic"),
    "*": ("+", "MultiplicationPrecedence", "BinaryInteger"),
    "/": ("*", "MultiplicationPrecedence", "BinaryInteger"),
    "%": ("/", "MultiplicationPrecedence", "BinaryInteger"),
    "&": ("|", "MultiplicationPrecedence", "BinaryInteger"),
    "|": ("&", "AdditionPrecedence", "BinaryInteger"),
    "^": ("|", "AdditionPrecedence", "BinaryInteger"),
    "<<": (">>", "BitwiseShiftPrecedence", "BinaryInteger"),
    ">>": ("<<", "BitwiseShiftPrecedence", "BinaryInteger"),
    "&+": ("&-", "AdditionPrecedence", "FixedWidthInteger"),
    "&-": ("&+", "AdditionPrecedence", "FixedWidthInteger"),
    "&*": ("&+", "MultiplicationPrecedence", "FixedWidthInteger"),
    "&<<": ("&>>", "BitwiseShiftPrecedence", "FixedWidthInteger"),
    "&>>": ("&<<", "BitwiseShiftPrecedence", "FixedWidthInteger"),
    "+=": ("-=", "AssignmentPrecedence", "AdditiveArithmetic"),
    "-=": ("+=", "AssignmentPrecedence", "AdditiveArithmetic"),
}

SUPPORT = """\
internal import Glibc

/// Knows which change is active in this process, if any.
enum Mutants {
    static let active = unsafe getenv("ACTIVE_MUTANT").flatMap { unsafe Int(String(cString: $0)) } ?? -1
    static func isActive(_ number: Int) -> Bool { active == number }
    static func negated(_ number: Int, _ condition: Bool) -> Bool { isActive(number) ? !condition : condition }
    static func constant<T>(_ number: Int, _ before: T, _ after: T) -> T { isActive(number) ? after : before }
    static func min<T: Comparable>(_ number: Int, _ a: T, _ b: T) -> T { isActive(number) ? Swift.max(a, b) : Swift.min(a, b) }
    static func max<T: Comparable>(_ number: Int, _ a: T, _ b: T) -> T { isActive(number) ? Swift.min(a, b) : Swift.max(a, b) }
}
"""


def arrows(number):
    """The name of the operator with this number."""
    return "".join("←↑→↓↔↕↖↗↘↙"[int(digit)] for digit in str(number))


def support(operators):
    """The source to add to a module, for operators that are given as their number, and what they are before and after."""
    return SUPPORT + "".join(declaration(*operator) for operator in operators)


def declaration(number, before, after):
    name, either = arrows(number), f"Mutants.isActive({number}) ? a {after} b : a {before} b"
    if before in ("...", "..<"):
        precedence, kind, last = (
            "RangeFormationPrecedence", "Range" if before == "..<" else "ClosedRange", "b + 1" if before == "..<" else "b - 1")
        function = f"(a: Int, b: Int) -> {kind}<Int> {{ a{before}(Mutants.isActive({number}) ? {last} : b) }}"
    else:
        precedence, operand = OPERATORS[before][1:]
        if operand == "Bool":
            # Without the second operand if the first one is true ("||") or false ("&&"); a change swaps that.
            decisive = f"Mutants.isActive({number}) != {str(before == '||').lower()}"
            function = f"<E>(a: Bool, b: @autoclosure () throws(E) -> Bool) throws(E) -> Bool {{ a == ({decisive}) ? a : try b() }}"
        elif precedence == "AssignmentPrecedence":
            function = (f"<T: {operand}>(a: inout T, b: T) "
                        f"{{ if Mutants.isActive({number}) {{ a {after} b }} else {{ a {before} b }} }}")
        elif precedence == "BitwiseShiftPrecedence":
            function = f"<T: {operand}>(a: T, b: some BinaryInteger) -> T {{ {either} }}"
        else:
            result = "Bool" if precedence == "ComparisonPrecedence" else "T"
            function = f"<T: {operand}>(a: T, b: T) -> {result} {{ {either} }}"
    return f"\ninfix operator {name}: {precedence}\nfunc {name} {function}\n"
