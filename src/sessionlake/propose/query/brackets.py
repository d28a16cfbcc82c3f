"""Tokens by their brackets: lists, conditions joined by `and`, and brackets around a whole."""

from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType

Tokens = Sequence[Token]


def split(tokens: Tokens, at: TokenType = TokenType.COMMA) -> list[Tokens]:
    """Return tokens between separators of a type outside brackets; nothing for no tokens."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += depth_of(token)
        if depth == 0 and token.token_type == at:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def conjuncts(tokens: Tokens) -> list[Tokens]:
    """Return the conditions that `and` joins outside of brackets, `between` and `case`.

    A condition with `or` outside of brackets is one whole.
    """
    tokens = unwrapped(tokens)
    depths = list(_depths(tokens))
    if any(depth == 0 and token.token_type == TokenType.OR for token, depth in zip(tokens, depths, strict=True)):
        return [tokens]
    parts: list[list[Token]] = [[]]
    between = 0
    for token, depth in zip(tokens, depths, strict=True):
        between += depth == 0 and token.token_type == TokenType.BETWEEN
        if depth == 0 and token.token_type == TokenType.AND and not between:
            parts.append([])
            continue
        between -= depth == 0 and token.token_type == TokenType.AND
        parts[-1].append(token)
    if len(parts) == 1:
        return [tokens] if tokens else []
    return [inner for part in parts for inner in conjuncts(part)]


def depth_of(token: Token) -> int:
    """Return how much deeper in brackets the tokens after one are."""
    opens = (TokenType.L_PAREN, TokenType.L_BRACKET)
    closes = (TokenType.R_PAREN, TokenType.R_BRACKET)
    return (token.token_type in opens) - (token.token_type in closes)


def _depths(tokens: Tokens) -> Iterator[int]:
    """Yield how deep each token is in brackets and in `case`."""
    brackets = cases = 0
    for token in tokens:
        brackets += depth_of(token)
        # `end` may also be the name of a column.
        cases += (token.token_type == TokenType.CASE) - (token.token_type == TokenType.END and cases > 0)
        yield brackets + cases


def unwrapped(tokens: Tokens) -> Tokens:
    """Return tokens without brackets around all of them."""
    inside = inner_of(tokens)
    return unwrapped(inside) if inside is not None and len(inside) + 2 == len(tokens) else tokens


def inner_of(tokens: Tokens) -> Tokens | None:
    """Return the tokens within the brackets with which tokens begin; None if they begin with none."""
    if not tokens or tokens[0].token_type != TokenType.L_PAREN:
        return None
    depth = 0
    for number, token in enumerate(tokens):
        depth += depth_of(token)
        if depth == 0:
            return tokens[1:number]
    return None
