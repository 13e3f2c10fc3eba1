//! Tokens to a tree, by recursive descent.

use std::sync::Arc;

use super::ast::{Element, Entry, Expr, Field, Kind, Literal, Select};
use super::factory::Factory;
use super::lexer::{Token, TokenKind, tokens};
use super::{Dialect, Outcome, Parsed, macros};
use crate::escape::RESERVED;
use crate::problem::Problem;

/// Levels of nesting. Source: cel-go's `maxRecursionDepth`.
const DEPTH_MAX: usize = 250;
/// Characters of an expression. Source: cel-go's `expressionSizeCodePointLimit`.
const CHARACTERS_MAX: usize = 100_000;
/// What an operand begins with, as upstream lists it.
const OPERAND: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
    STRING, BYTES, IDENTIFIER}";
/// What follows the beginning of a list, a map, arguments, an object.
const IN_LIST: &str = "{'[', ']', '{', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
    NUM_UINT, STRING, BYTES, IDENTIFIER}";
const IN_MAP: &str = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
    NUM_UINT, STRING, BYTES, IDENTIFIER}";
const IN_ARGUMENTS: &str = "{'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
    NUM_UINT, STRING, BYTES, IDENTIFIER}";
const IN_OBJECT: &str = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}";

/// Why parsing ended; one is enough.
type Parse<T> = Result<T, Problem>;

/// Parses an expression.
pub(crate) fn parse(text: &str, dialect: Dialect) -> Outcome {
    let characters: Vec<char> = text.chars().take(CHARACTERS_MAX + 1).collect();
    if characters.len() > CHARACTERS_MAX {
        let size = text.chars().count();
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {CHARACTERS_MAX}");
        return Err(vec![Problem::nowhere(message)]);
    }
    let (tokens, mut problems) = tokens(&characters);
    let mut parser =
        Parser { text: &characters, tokens, next: 0, depth: 0, factory: Factory::default(), dialect };
    match parser.whole() {
        Ok(root) if problems.is_empty() => Ok(Parsed { root, nodes: parser.factory.nodes }),
        Ok(_) => Err(problems),
        Err(problem) => {
            problems.push(problem);
            problems.sort_by_key(|problem| problem.at);
            Err(problems)
        }
    }
}

struct Parser<'t> {
    text: &'t [char],
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    factory: Factory,
    dialect: Dialect,
}

impl Parser<'_> {
    fn whole(&mut self) -> Parse<Expr> {
        let root = self.expression()?;
        if *self.kind() == TokenKind::End {
            return Ok(root);
        }
        let is_last = *self.ahead(1) == TokenKind::End;
        Err(self.unexpected(if is_last { "extraneous input" } else { "mismatched input" }, "<EOF>"))
    }

    fn token(&self) -> Token {
        let end = Token { kind: TokenKind::End, at: self.text.len(), end: self.text.len() };
        self.tokens.get(self.next).cloned().unwrap_or(end)
    }

    fn kind(&self) -> &TokenKind {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> &TokenKind {
        self.tokens.get(self.next + count).map_or(&TokenKind::End, |token| &token.kind)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.text.len(), |token| token.at)
    }

    fn is(&self, sign: &str) -> bool {
        self.is_ahead(0, sign)
    }

    fn is_ahead(&self, count: usize, sign: &str) -> bool {
        matches!(self.ahead(count), TokenKind::Sign(this) if *this == sign)
    }

    /// Goes on if the sign is there, and says where it was.
    fn accept(&mut self, sign: &str) -> Option<usize> {
        let at = self.at();
        self.is(sign).then(|| {
            self.next += 1;
            at
        })
    }

    fn expect(&mut self, sign: &str) -> Parse<usize> {
        self.accept(sign).ok_or_else(|| {
            // As upstream recovers: by a token less, by one more, or not at all.
            let would_go_on = match self.kind() {
                _ if sign == ":" => begins_operand(self.kind()),
                TokenKind::End => self.open_brackets() <= 1,
                _ => false,
            };
            if self.is_ahead(1, sign) {
                self.unexpected("extraneous input", &format!("'{sign}'"))
            } else if would_go_on {
                Problem::new(self.at(), format!("Syntax error: missing '{sign}' at '{}'", self.found()))
            } else {
                self.unexpected("mismatched input", &format!("'{sign}'"))
            }
        })
    }

    /// Items up to a bracket, with commas between them and perhaps after the last, or with a comma alone.
    fn items(
        &mut self,
        end: &str,
        expected: &str,
        begins: fn(&TokenKind) -> bool,
        mut item: impl FnMut(&mut Self) -> Parse<()>,
    ) -> Parse<()> {
        let is_end = |kind: &TokenKind| matches!(kind, TokenKind::Sign(sign) if *sign == end || *sign == ",");
        let is_first = |kind: &TokenKind| begins(kind) || is_end(kind);
        if !is_first(self.kind()) {
            return Err(self.neither(expected, is_first));
        }
        while begins(self.kind()) {
            item(self)?;
            if !is_end(self.kind()) {
                return Err(self.neither(&format!("{{'{end}', ','}}"), is_end));
            }
            if self.accept(",").is_none() || !begins(self.kind()) {
                return self.expect(end).map(drop);
            }
        }
        self.accept(",");
        self.expect(end).map(drop)
    }

    /// Brackets that are open before the next token.
    fn open_brackets(&self) -> usize {
        self.tokens.iter().take(self.next).fold(0, |open, token| match token.kind {
            TokenKind::Sign("(" | "[" | "{") => open + 1,
            TokenKind::Sign(")" | "]" | "}") => open.saturating_sub(1),
            _ => open,
        })
    }

    /// The problem of a token that is not among those expected: superfluous if the one after it is among them.
    fn neither(&self, expected: &str, is_expected: impl Fn(&TokenKind) -> bool) -> Problem {
        let what = if is_expected(self.ahead(1)) { "extraneous input" } else { "mismatched input" };
        self.unexpected(what, expected)
    }

    /// The problem of a token that nothing is known for, after the one before it.
    fn no_alternative(&self, before: &str) -> Problem {
        let found = if *self.kind() == TokenKind::End { String::new() } else { self.found() };
        Problem::new(self.at(), format!("Syntax error: no viable alternative at input '{before}{found}'"))
    }

    fn found(&self) -> String {
        let token = self.token();
        match token.kind {
            TokenKind::End => "<EOF>".to_owned(),
            _ => self.text.get(token.at..token.end).unwrap_or_default().iter().collect(),
        }
    }

    fn unexpected(&self, what: &str, expected: &str) -> Problem {
        Problem::new(self.at(), format!("Syntax error: {what} '{}' expecting {expected}", self.found()))
    }

    /// Runs what parses a level deeper.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth >= DEPTH_MAX {
            return Err(Problem::nowhere(format!("expression recursion limit exceeded: {DEPTH_MAX}")));
        }
        self.depth += 1;
        let parsed = stacker::maybe_grow(64 << 10, 1 << 20, || parse(self));
        self.depth -= 1;
        parsed
    }

    fn expression(&mut self) -> Parse<Expr> {
        self.deeper(|parser| {
            let condition =
                parser.logic("||", "_||_", |parser| parser.logic("&&", "_&&_", Self::relation))?;
            let Some(at) = parser.accept("?") else {
                return Ok(condition);
            };
            let yes = parser.logic("||", "_||_", |parser| parser.logic("&&", "_&&_", Self::relation))?;
            parser.expect(":")?;
            let no = parser.expression()?;
            Ok(parser.factory.call(at, "_?_:_", vec![condition, yes, no]))
        })
    }

    fn logic(
        &mut self,
        sign: &str,
        function: &str,
        mut operand: impl FnMut(&mut Self) -> Parse<Expr>,
    ) -> Parse<Expr> {
        let first = operand(self)?;
        if !self.is(sign) {
            return Ok(first);
        }
        let at = self.at();
        let mut args = vec![first];
        while self.accept(sign).is_some() {
            args.push(operand(self)?);
        }
        Ok(self.factory.call(at, function, args))
    }

    fn relation(&mut self) -> Parse<Expr> {
        const SIGNS: &[(&str, &str)] = &[
            ("<", "_<_"),
            ("<=", "_<=_"),
            (">=", "_>=_"),
            (">", "_>_"),
            ("==", "_==_"),
            ("!=", "_!=_"),
            ("in", "@in"),
        ];
        self.chain(SIGNS, Self::sum)
    }

    fn sum(&mut self) -> Parse<Expr> {
        self.chain(&[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Parse<Expr> {
        self.chain(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    /// Operands with operators of the same rank between them, from the left. Each makes the tree deeper.
    fn chain(&mut self, signs: &[(&str, &str)], operand: fn(&mut Self) -> Parse<Expr>) -> Parse<Expr> {
        let mut left = operand(self)?;
        let depth = self.depth;
        while let Some((sign, function)) = signs.iter().find(|(sign, _)| self.is(sign)) {
            let at = self.expect(sign)?;
            self.depth += 1;
            let right = self.deeper(operand)?;
            left = self.factory.call(at, function, vec![left, right]);
        }
        self.depth = depth;
        Ok(left)
    }

    fn unary(&mut self) -> Parse<Expr> {
        let at = self.at();
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0_usize;
            while self.is(sign) {
                if sign == "-" && count == 0 && matches!(self.ahead(1), TokenKind::Int(..)) {
                    break;
                }
                if sign == "-"
                    && count == 0
                    && matches!(self.ahead(1), TokenKind::Literal(Literal::Double(_)))
                {
                    break;
                }
                self.next += 1;
                count += 1;
            }
            if count > 0 {
                if sign == "-" && (self.is("!") || !begins_operand(self.kind())) {
                    return Err(self.no_alternative("-"));
                }
                let operand = self.member()?;
                let is_kept = count.is_multiple_of(2);
                return Ok(if is_kept { operand } else { self.factory.call(at, function, vec![operand]) });
            }
        }
        self.member()
    }

    fn member(&mut self) -> Parse<Expr> {
        let mut operand = self.primary()?;
        let depth = self.depth;
        loop {
            if let Some(at) = self.accept(".") {
                operand = self.selected(operand, at)?;
            } else if let Some(at) = self.accept("[") {
                let function = if self.accept("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                operand = self.factory.call(at, function, vec![operand, index]);
            } else {
                break;
            }
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(Problem::nowhere(format!("expression recursion limit exceeded: {DEPTH_MAX}")));
            }
        }
        self.depth = depth;
        Ok(operand)
    }

    /// What follows a dot.
    fn selected(&mut self, operand: Expr, at: usize) -> Parse<Expr> {
        let is_optional = self.accept("?").is_some();
        let name_at = self.at();
        let name = match self.kind().clone() {
            TokenKind::Ident(name) => name,
            TokenKind::Escaped(name) => name,
            // Names with dots between them may still become the name of a type.
            _ if is_optional || operand.qualified_name().is_some() => {
                return Err(self.unexpected("mismatched input", "IDENTIFIER"));
            }
            _ => return Err(self.no_alternative(".")),
        };
        let is_plain = matches!(self.kind(), TokenKind::Ident(_));
        self.next += 1;
        if is_optional {
            let field = self.factory.node(name_at, Kind::Literal(Literal::String(name)));
            return Ok(self.factory.call(at, "_?._", vec![operand, field]));
        }
        if is_plain && let Some(open) = self.accept("(") {
            let args = self.arguments()?;
            let dialect = self.dialect;
            return macros::member(
                &mut self.factory,
                dialect,
                macros::Written { at: open, name, target: operand, args },
            );
        }
        let select = Select { operand: Box::new(operand), field: name, is_test: false };
        Ok(self.factory.node(at, Kind::Select(select)))
    }

    /// What stands between a call's parentheses.
    fn arguments(&mut self) -> Parse<Vec<Expr>> {
        let mut args = Vec::new();
        let is_first = |kind: &TokenKind| begins_operand(kind) || *kind == TokenKind::Sign(")");
        if !is_first(self.kind()) {
            return Err(self.neither(IN_ARGUMENTS, is_first));
        }
        if self.accept(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok(args)
    }

    fn primary(&mut self) -> Parse<Expr> {
        let at = self.at();
        if self.accept("(").is_some() {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.accept("[").is_some() {
            return self.list(at);
        }
        if self.accept("{").is_some() {
            return self.map(at);
        }
        if let Some(literal) = self.literal()? {
            return Ok(self.factory.node(at, Kind::Literal(literal)));
        }
        let dot = self.accept(".").map_or("", |_| ".");
        let TokenKind::Ident(name) = self.kind().clone() else {
            return Err(match dot {
                "" => self.neither(OPERAND, begins_operand),
                _ => self.no_alternative(dot),
            });
        };
        if let Some(segments) = self.made_type() {
            return self.made(dot, segments);
        }
        let name_at = self.at();
        self.next += 1;
        if RESERVED.contains(&&*name) {
            return Err(Problem::new(at, format!("reserved identifier: {name}")));
        }
        let name: Arc<str> = if dot.is_empty() { name } else { format!(".{name}").into() };
        if let Some(open) = self.accept("(") {
            let args = self.arguments()?;
            return macros::global(&mut self.factory, open, &name, args);
        }
        Ok(self.factory.node(name_at, Kind::Ident(name)))
    }

    fn literal(&mut self) -> Parse<Option<Literal>> {
        let at = self.at();
        let is_negative = self.is("-");
        let literal = match self.ahead(usize::from(is_negative)).clone() {
            TokenKind::Int(digits, base) => {
                let text = if is_negative { format!("-{digits}") } else { digits };
                let number = i64::from_str_radix(&text, base);
                Literal::Int(number.map_err(|_| Problem::new(at, "invalid int literal"))?)
            }
            TokenKind::Literal(Literal::Double(number)) if is_negative => Literal::Double(-number),
            TokenKind::Literal(literal) if !is_negative => literal,
            TokenKind::Wrong(why) if !is_negative => return Err(Problem::new(at, why)),
            _ => return Ok(None),
        };
        self.next += 1 + usize::from(is_negative);
        Ok(Some(literal))
    }

    fn list(&mut self, at: usize) -> Parse<Expr> {
        let mut elements = Vec::new();
        self.items("]", IN_LIST, begins_element, |parser| {
            let is_optional = parser.accept("?").is_some();
            elements.push(Element { value: parser.expression()?, is_optional });
            Ok(())
        })?;
        Ok(self.factory.node(at, Kind::List(elements)))
    }

    fn map(&mut self, at: usize) -> Parse<Expr> {
        let mut entries = Vec::new();
        self.items("}", IN_MAP, begins_element, |parser| {
            let is_optional = parser.accept("?").is_some();
            let key = parser.expression()?;
            parser.expect(":")?;
            entries.push(Entry { key, value: parser.expression()?, is_optional });
            Ok(())
        })?;
        Ok(self.factory.node(at, Kind::Map(entries)))
    }

    /// How many segments the name of a type has that an object is made of here: `a.b.C{`.
    fn made_type(&self) -> Option<usize> {
        let mut segments = 1;
        loop {
            let last = segments * 2 - 1;
            if self.is_ahead(last, "{") {
                return Some(segments);
            }
            if !self.is_ahead(last, ".") || !matches!(self.ahead(last + 1), TokenKind::Ident(_)) {
                return None;
            }
            segments += 1;
        }
    }

    fn made(&mut self, dot: &str, segments: usize) -> Parse<Expr> {
        let mut names = Vec::new();
        for _ in 0..segments {
            if let TokenKind::Ident(name) = self.kind() {
                names.push(name.to_string());
            }
            self.next += 2;
        }
        // Two tokens each, but there is no dot after the last.
        self.next -= 1;
        let at = self.expect("{")?;
        let mut fields = Vec::new();
        self.items("}", IN_OBJECT, begins_field, |parser| {
            let is_optional = parser.accept("?").is_some();
            let name = match parser.kind().clone() {
                TokenKind::Ident(name) | TokenKind::Escaped(name) => name,
                _ => return Err(parser.unexpected("mismatched input", "{IDENTIFIER, ESC_IDENTIFIER}")),
            };
            parser.next += 1;
            let at = parser.expect(":")?;
            fields.push(Field { at, name, value: parser.expression()?, is_optional });
            Ok(())
        })?;
        let name = format!("{dot}{}", names.join("."));
        Ok(self.factory.node(at, Kind::Struct(name.into(), fields)))
    }
}

fn begins_operand(kind: &TokenKind) -> bool {
    match kind {
        TokenKind::Sign(sign) => matches!(*sign, "[" | "{" | "(" | "." | "-" | "!"),
        TokenKind::Ident(_) | TokenKind::Literal(_) | TokenKind::Int(..) | TokenKind::Wrong(_) => true,
        TokenKind::Escaped(_) | TokenKind::End => false,
    }
}

fn begins_element(kind: &TokenKind) -> bool {
    begins_operand(kind) || *kind == TokenKind::Sign("?")
}

fn begins_field(kind: &TokenKind) -> bool {
    matches!(kind, TokenKind::Ident(_) | TokenKind::Escaped(_) | TokenKind::Sign("?"))
}
