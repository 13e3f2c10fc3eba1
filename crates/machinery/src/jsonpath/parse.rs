//! From a text to a path.

use serde_json::Value;

use super::{BYTES_MAX, Comparison, DEPTH_MAX, ParseError, Slice, Step};

type Result<T> = std::result::Result<T, ParseError>;

fn error<T>(text: impl Into<String>) -> Result<T> {
    Err(ParseError(text.into()))
}

pub(super) fn parse(text: &str) -> Result<Vec<Step>> {
    if text.len() > BYTES_MAX {
        return error(format!("a path has at most {BYTES_MAX} bytes"));
    }
    steps(text, DEPTH_MAX)
}

/// A text that is read from left to right.
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn take(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Splits off what comes before byte `at`.
    fn until(&mut self, at: usize) -> &'t str {
        let (before, rest) = self.rest.split_at_checked(at).unwrap_or((self.rest, ""));
        self.rest = rest;
        before
    }
}

fn steps(text: &str, depth: usize) -> Result<Vec<Step>> {
    let Some(depth) = depth.checked_sub(1) else { return error("filters are nested too deeply") };
    let mut reader = Reader { rest: text };
    let mut steps = Vec::new();
    while let Some(next) = reader.rest.chars().next() {
        if reader.take("[?(") {
            steps.push(filter(&mut reader, depth)?);
        } else if reader.take("..") {
            if steps.last() == Some(&Step::Recursive) {
                return error("invalid multiple recursive descent");
            }
            steps.push(Step::Recursive);
            if reader.rest.starts_with(is_alphanumeric) {
                steps.push(field(&mut reader));
            }
        } else if matches!(next, ' ' | '@' | '$') {
            reader.until(next.len_utf8());
        } else if reader.take("[") {
            array(&mut reader, &mut steps, depth)?;
        } else if matches!(next, '"' | '\'') {
            steps.push(quote(&mut reader, next)?);
        } else if reader.take(".") {
            steps.push(field(&mut reader));
        } else if matches!(next, '+' | '-') || next.is_numeric() {
            steps.push(number(&mut reader)?);
        } else if is_alphanumeric(next) {
            steps.push(word(&mut reader)?);
        } else if matches!(next, '\r' | '\n') {
            return error("unclosed action");
        } else {
            return error(format!("unrecognized character in action: {next:?}"));
        }
    }
    Ok(steps)
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// A field's name, in which a backslash takes its meaning from the character that follows.
fn field(reader: &mut Reader<'_>) -> Step {
    let mut name = String::new();
    let mut end = reader.rest.len();
    let mut is_escaped = false;
    for (at, c) in reader.rest.char_indices() {
        if !is_escaped && is_terminator(c) {
            end = at;
            break;
        }
        is_escaped = !is_escaped && c == '\\';
        if c != '\\' {
            name.push(c);
        }
    }
    let written = reader.until(end);
    if written == "*" { Step::Wildcard } else { Step::Field(name) }
}

fn word(reader: &mut Reader<'_>) -> Result<Step> {
    let end = reader.rest.find(is_terminator).unwrap_or(reader.rest.len());
    match reader.until(end) {
        "true" => Ok(Step::Literal(true.into())),
        "false" => Ok(Step::Literal(false.into())),
        other => error(format!("unrecognized identifier {other}")),
    }
}

fn number(reader: &mut Reader<'_>) -> Result<Step> {
    let signed = reader.rest.strip_prefix(['+', '-']).unwrap_or(reader.rest);
    let digits = signed.find(|c: char| c != '.' && !c.is_numeric()).unwrap_or(signed.len());
    let text = reader.until(reader.rest.len() - signed.len() + digits);
    if let Ok(number) = text.parse::<i64>() {
        return Ok(Step::Literal(number.into()));
    }
    match text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
        Some(number) => Ok(Step::Literal(Value::Number(number))),
        None => error(format!("cannot parse number {text}")),
    }
}

/// A text in quotes of either kind.
fn quote(reader: &mut Reader<'_>, mark: char) -> Result<Step> {
    let mut text = String::new();
    let mut is_escaped = false;
    for (at, c) in reader.rest.char_indices().skip(1) {
        if c == '\n' {
            break;
        }
        if is_escaped {
            text.push(match c {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '\\' | '"' | '\'' => c,
                _ => return error(format!("unquote string {} error invalid syntax", reader.rest)),
            });
            is_escaped = false;
        } else if c == '\\' {
            is_escaped = true;
        } else if c == mark {
            reader.until(at + 1);
            return Ok(Step::Literal(text.into()));
        } else {
            text.push(c);
        }
    }
    error("unterminated quoted string")
}

fn array(reader: &mut Reader<'_>, steps: &mut Vec<Step>, depth: usize) -> Result<()> {
    let end = reader.rest.find([']', '\n']);
    let Some((text, rest)) = end.and_then(|end| reader.rest.split_at_checked(end)) else {
        return error("unterminated array");
    };
    let Some(rest) = rest.strip_prefix(']') else { return error("unterminated array") };
    reader.rest = rest;
    if text.contains(',') {
        let parts = text.split(',').map(|part| self::steps(&format!("[{}]", part.trim_matches(' ')), depth));
        steps.push(Step::Union(parts.collect::<Result<_>>()?));
        return Ok(());
    }
    let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    if let Some(key) = key.filter(|key| !key.contains('\'')) {
        steps.extend(self::steps(&format!(".{key}"), depth)?);
        return Ok(());
    }
    steps.push(Step::Slice(slice(text)?));
    Ok(())
}

fn slice(text: &str) -> Result<Slice> {
    let text = if text == "*" { ":" } else { text };
    let mut parts = text.split(':');
    let (start, end, step) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let read = |part: &str| -> Result<Option<i64>> {
        match part {
            "" => Ok(None),
            part => match part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit()) {
                true => part
                    .parse()
                    .map(Some)
                    .map_err(|_| ParseError(format!("array index {part} is not a number"))),
                false => error(format!("invalid array index {text}")),
            },
        }
    };
    if parts.next().is_some() {
        return error(format!("invalid array index {text}"));
    }
    let start = read(start)?;
    let is_one = end.is_none();
    let end = match end {
        Some(end) => read(end)?,
        None => Some(start.unwrap_or(0).saturating_add(1)),
    };
    Ok(Slice { start, end, is_one, step: step.map_or(Ok(None), read)? })
}

/// Where the parenthesis of a filter closes. Within it at most one text is quoted.
fn end_of_filter(text: &str) -> Option<usize> {
    let (mut quote, mut is_over, mut before) = (None, false, '\0');
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('\n', _) => return None,
            ('"' | '\'', None) => quote = Some(c),
            ('"' | '\'', Some(mark)) if c == mark && before != '\\' => is_over = true,
            (')', _) if quote.is_some() == is_over => return Some(at),
            _ => {}
        }
        before = c;
    }
    None
}

fn filter(reader: &mut Reader<'_>, depth: usize) -> Result<Step> {
    let Some(end) = end_of_filter(reader.rest) else { return error("unterminated filter") };
    let text = reader.until(end);
    if !reader.take(")]") {
        return error("unclosed array expect ]");
    }
    let is_sign = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let split = text.find(is_sign).filter(|at| *at > 0).and_then(|at| {
        let (left, rest) = text.split_at_checked(at)?;
        let right = rest.trim_start_matches(is_sign);
        let sign = rest.strip_suffix(right)?;
        (!right.is_empty()).then_some((left, sign, right))
    });
    let Some((left, sign, right)) = split else {
        return Ok(Step::Filter(steps(text, depth)?, Comparison::Exists, Vec::new()));
    };
    let comparison = match sign {
        "<" => Comparison::Less,
        ">" => Comparison::Greater,
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<=" => Comparison::AtMost,
        ">=" => Comparison::AtLeast,
        other => return error(format!("unrecognized filter operator {other}")),
    };
    Ok(Step::Filter(steps(left, depth)?, comparison, steps(right, depth)?))
}
