"""Arithmetic without eval: a small tree walk over the few kinds of nodes that arithmetic needs.

Everything is bounded before it is computed: length and depth of the expression, digits of every number, size of every
power. Integers and decimals are exact; results that have no finite decimal form are given to 28 digits.
"""

import ast
import math
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, InvalidOperation, Overflow
from fractions import Fraction
from typing import Final

from harness.errors import ToolError
from harness.tools.base import tool

Number = int | Decimal

_MAX_CHARS: Final = 500
# A plain sum is as deep as it has terms, so this is above what fits into the characters: it stops rows of signs.
_MAX_DEPTH: Final = 260
_MAX_DIGITS: Final = 1_000
_CONTEXT: Final = Context(prec=28, Emax=_MAX_DIGITS, Emin=-_MAX_DIGITS, traps=[InvalidOperation, Overflow])
_WIDE: Final = Context(prec=38, Emax=_MAX_DIGITS, Emin=-_MAX_DIGITS, traps=[InvalidOperation, Overflow])
_NOISE: Final = Decimal("1e-15")
# To more digits than are shown, so that log(e) is 1.
_NAMES: Final[dict[str, Number]] = {
    "pi": Decimal("3.14159265358979323846264338327950288420"),
    "e": Decimal("2.71828182845904523536028747135266249776"),
}


@tool(read_only=True)
def calculator(expression: str) -> str:
    """Compute an arithmetic expression.

    Operators: + - * / // % ** and parentheses. Functions: sqrt abs round min max floor ceil log exp sin cos tan.
    Constants: pi e. Angles are in radians; log(x) is natural, log(x, base) has a base.
    """
    if len(expression) > _MAX_CHARS:
        raise ToolError(f"The expression is longer than {_MAX_CHARS} characters.")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _shown(_value(tree.body, expression.strip(), 0))
    except ToolError:
        raise
    except ZeroDivisionError as error:
        raise ToolError("Division by zero.") from error
    except (DecimalException, OverflowError) as error:
        raise ToolError("The result is too large, or is not a real number.") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError("This is not an arithmetic expression.") from error


def _value(node: ast.expr, source: str, depth: int) -> Number:
    if depth > _MAX_DEPTH:
        raise ToolError(f"The expression is nested deeper than {_MAX_DEPTH} levels.")
    match node:
        case ast.Constant(value=bool() | str() | bytes() | complex() | None):
            raise ToolError("Only numbers can be computed.")
        case ast.Constant(value=int(value)):
            return _bounded(value)
        case ast.Constant(value=float()):
            # The text, not the float: 0.1 is a tenth here.
            return _CONTEXT.create_decimal((ast.get_source_segment(source, node) or "").replace("_", ""))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, source, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, source, depth + 1)
        case ast.BinOp(left=left, op=op, right=right):
            return _bounded(_binary(op, _value(left, source, depth + 1), _value(right, source, depth + 1)))
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_call(name, [_value(arg, source, depth + 1) for arg in args]))
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            raise ToolError(f"{name!r} is not known here. Functions: {' '.join(_FUNCTIONS)}; constants: pi e.")
        case _:
            raise ToolError("Only numbers, operators, parentheses and the listed functions can be used.")


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    exact = isinstance(left, int) and isinstance(right, int)
    match op:
        case ast.Add():
            return left + right if exact else _CONTEXT.add(Decimal(left), Decimal(right))
        case ast.Sub():
            return left - right if exact else _CONTEXT.subtract(Decimal(left), Decimal(right))
        case ast.Mult():
            return left * right if exact else _CONTEXT.multiply(Decimal(left), Decimal(right))
        case ast.Div():
            return _divide(left, right)
        case ast.FloorDiv():
            _not_zero(right)
            return left // right if exact else _whole_quotient(left, right)
        case ast.Mod():
            # The sign follows the divisor, for decimals as for integers.
            _not_zero(right)
            if exact:
                return left % right
            rest = Fraction(left) - Fraction(right) * _whole_quotient(left, right)
            return _CONTEXT.divide(Decimal(rest.numerator), Decimal(rest.denominator))
        case ast.Pow():
            return _power(left, right)
        case _:
            raise ToolError("This operator is not supported; use + - * / // % **.")


def _divide(left: Number, right: Number) -> Number:
    _not_zero(right)
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return _CONTEXT.divide(Decimal(left), Decimal(right))


def _whole_quotient(left: Number, right: Number) -> int:
    # As fractions: a quotient rounded to 28 digits may have another whole part than the exact one.
    return math.floor(Fraction(left) / Fraction(right))


def _power(base: Number, exponent: Number) -> Number:
    if exponent == 0:
        return 1
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        if abs(base) > 1 and exponent * math.log10(abs(base)) > _MAX_DIGITS:
            raise ToolError(f"The result would have more than {_MAX_DIGITS:,} digits.")
        return base**exponent
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    return _CONTEXT.power(Decimal(base), Decimal(exponent))


def _call(name: str, arguments: list[Number]) -> Number:
    low, high, function = _FUNCTIONS[name]
    if not low <= len(arguments) <= high:
        raise ToolError(f"{name} takes {low if low == high else f'{low} to {high}'} argument(s).")
    return function(*arguments)


def _float(function: Callable[[float], float]) -> Callable[[Number], Number]:
    def call(x: Number) -> Number:
        angle = float(x)
        if math.isinf(angle):
            raise OverflowError
        # 15 digits are what a double holds; more would show its rounding noise, such as sin(pi) = 1.2e-16.
        value = Decimal(f"{function(angle):.15g}")
        return Decimal(0) if abs(value) < _NOISE < abs(x) else value

    return call


def _sqrt(x: Number) -> Number:
    if x < 0:
        raise ToolError("sqrt of a negative number is not a real number.")
    if isinstance(x, int) and math.isqrt(x) ** 2 == x:
        return math.isqrt(x)
    return _CONTEXT.sqrt(Decimal(x))


def _log(x: Number, base: Number | None = None) -> Number:
    if x <= 0 or (base is not None and (base <= 0 or base == 1)):
        raise ToolError("log needs a positive number, and a positive base other than 1.")
    if base is None:
        return _CONTEXT.ln(Decimal(x))
    # Ten digits more on the way, so that log(8, 2) is 3.
    return _CONTEXT.plus(_WIDE.divide(_WIDE.ln(Decimal(x)), _WIDE.ln(Decimal(base))))


def _exp(x: Number) -> Number:
    return _CONTEXT.exp(Decimal(x))


def _round(x: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > _CONTEXT.prec:
        raise ToolError("round takes a whole number of digits.")
    if isinstance(x, int):
        return round(x, min(digits, 0))
    exponent = x.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -digits:
        return int(x) if digits <= 0 else x  # nothing to round; quantize would refuse more than 28 digits
    # Half to even, as Python rounds.
    rounded = x.quantize(Decimal(1).scaleb(-digits), context=_CONTEXT)
    return int(rounded) if digits <= 0 else rounded


def _abs(x: Number) -> Number:
    return abs(x)


_FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., Number]]]] = {
    "sqrt": (1, 1, _sqrt),
    "abs": (1, 1, _abs),
    "round": (1, 2, _round),
    "min": (1, 50, lambda *values: min(values)),
    "max": (1, 50, lambda *values: max(values)),
    "floor": (1, 1, math.floor),
    "ceil": (1, 1, math.ceil),
    "log": (1, 2, _log),
    "exp": (1, 1, _exp),
    "sin": (1, 1, _float(math.sin)),
    "cos": (1, 1, _float(math.cos)),
    "tan": (1, 1, _float(math.tan)),
}


def _not_zero(value: Number) -> None:
    if value == 0:
        raise ZeroDivisionError


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > _MAX_DIGITS * 3.33:
        raise ToolError(f"A number has more than {_MAX_DIGITS:,} digits.")
    return value


def _shown(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    if value == value.to_integral_value() and abs(value) < Decimal(10) ** 28:
        return str(int(value))
    text = f"{value.normalize(_CONTEXT)}"
    return f"{value.normalize(_CONTEXT):f}" if -10 < value.adjusted() < 28 else text
