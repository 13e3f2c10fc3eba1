//! The errors of a text that is no JSON, in the words of Go's `encoding/json`, which clients show to people.
//!
//! It looks at the text again after a parser has refused it: good input never comes here, and nothing is built.

/// How deep values may nest before Go stops.
const DEPTH_MAX: usize = 10_000;
const VALUE: &str = "looking for beginning of value";
const KEY: &str = "looking for beginning of object key string";

/// What is wrong with a text that is no JSON.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyntaxError {
    #[error("unexpected end of JSON input")]
    End,
    #[error("exceeded max depth")]
    Depth,
    /// A byte, and where it stands.
    #[error("invalid character {byte} {1}", byte = quoted(*.0))]
    Character(u8, &'static str),
    /// A byte, the word that it is in, and the byte that the word has there.
    #[error("invalid character {byte} in literal {1} (expecting {expected})", byte = quoted(*.0), expected = quoted(*.2))]
    Literal(u8, &'static str, u8),
}

type Step<T = ()> = Result<T, SyntaxError>;

/// Go's complaint; `None` if Go finds nothing wrong with the syntax.
pub(crate) fn complaint(text: &[u8]) -> Option<SyntaxError> {
    Scan { rest: text }.document().err()
}

struct Scan<'a> {
    rest: &'a [u8],
}

/// What encloses a value.
#[derive(Clone, Copy)]
enum Within {
    Object,
    Array,
}

impl Scan<'_> {
    fn document(&mut self) -> Step {
        let mut open: Vec<Within> = Vec::new();
        loop {
            if self.begins_value(&mut open)? {
                continue;
            }
            // A value has ended: so may what is around it, or the next one begins.
            loop {
                let Some(within) = open.last() else { return self.nothing_more() };
                let (end, context) = match within {
                    Within::Object => (b'}', "after object key:value pair"),
                    Within::Array => (b']', "after array element"),
                };
                match (self.token()?, within) {
                    (b',', Within::Object) => {
                        self.key()?;
                        break;
                    }
                    (b',', Within::Array) => break,
                    (byte, _) if byte == end => {
                        open.pop();
                    }
                    (byte, _) => return Err(SyntaxError::Character(byte, context)),
                }
            }
        }
    }

    /// Reads a scalar or the beginning of a container; says whether a value must follow.
    fn begins_value(&mut self, open: &mut Vec<Within>) -> Step<bool> {
        match self.token()? {
            b'{' if self.next_is(b'}') => return Ok(false),
            b'[' if self.next_is(b']') => return Ok(false),
            b'{' => {
                open.push(Within::Object);
                self.key()?;
            }
            b'[' => open.push(Within::Array),
            byte => return self.scalar(byte).map(|()| false),
        }
        if open.len() > DEPTH_MAX { Err(SyntaxError::Depth) } else { Ok(true) }
    }

    fn key(&mut self) -> Step {
        match self.token()? {
            b'"' => self.string()?,
            byte => return Err(SyntaxError::Character(byte, KEY)),
        }
        match self.token()? {
            b':' => Ok(()),
            byte => Err(SyntaxError::Character(byte, "after object key")),
        }
    }

    fn scalar(&mut self, first: u8) -> Step {
        match first {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(first),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            byte => Err(SyntaxError::Character(byte, VALUE)),
        }
    }

    fn string(&mut self) -> Step {
        loop {
            match self.next().ok_or(SyntaxError::End)? {
                b'"' => return Ok(()),
                b'\\' => match self.next_or_space() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next_or_space();
                            if !byte.is_ascii_hexdigit() {
                                return Err(SyntaxError::Character(
                                    byte,
                                    "in \\u hexadecimal character escape",
                                ));
                            }
                        }
                    }
                    byte => return Err(SyntaxError::Character(byte, "in string escape code")),
                },
                byte if byte < 0x20 => return Err(SyntaxError::Character(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self, mut first: u8) -> Step {
        if first == b'-' {
            first = self.next_or_space();
            if !first.is_ascii_digit() {
                return Err(SyntaxError::Character(first, "in numeric literal"));
            }
        }
        if first != b'0' {
            self.digits();
        }
        if self.take_if(|byte| byte == b'.') {
            self.digit("after decimal point in numeric literal")?;
        }
        if self.take_if(|byte| matches!(byte, b'e' | b'E')) {
            self.take_if(|byte| matches!(byte, b'+' | b'-'));
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// One digit at least.
    fn digit(&mut self, context: &'static str) -> Step {
        let byte = self.next_or_space();
        if !byte.is_ascii_digit() {
            return Err(SyntaxError::Character(byte, context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.take_if(|byte| byte.is_ascii_digit()) {}
    }

    fn literal(&mut self, word: &'static str) -> Step {
        for expected in word.bytes().skip(1) {
            let byte = self.next_or_space();
            if byte != expected {
                return Err(SyntaxError::Literal(byte, word, expected));
            }
        }
        Ok(())
    }

    fn nothing_more(&mut self) -> Step {
        self.skip_space();
        self.next().map_or(Ok(()), |byte| Err(SyntaxError::Character(byte, "after top-level value")))
    }

    /// The next byte that is no white space.
    fn token(&mut self) -> Step<u8> {
        self.skip_space();
        self.next().ok_or(SyntaxError::End)
    }

    /// Takes the next byte that is no white space if it is this one.
    fn next_is(&mut self, expected: u8) -> bool {
        self.skip_space();
        self.take_if(|byte| byte == expected)
    }

    fn skip_space(&mut self) {
        while self.take_if(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {}
    }

    fn take_if(&mut self, is_wanted: impl Fn(u8) -> bool) -> bool {
        match self.rest.split_first() {
            Some((byte, rest)) if is_wanted(*byte) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    /// At the end Go looks what a space would do.
    fn next_or_space(&mut self) -> u8 {
        self.next().unwrap_or(b' ')
    }
}

/// A byte as Go shows it: as the character of that number.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        0x00..0x20 | 0x7f => format!(r"'\x{byte:02x}'"),
        0x80..0xa1 | 0xad => format!(r"'\u{byte:04x}'"),
        byte => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    fn check(text: &str, expect: &str) {
        let found = super::complaint(text.as_bytes()).map(|complaint| complaint.to_string());
        assert_eq!(found.unwrap_or_default(), expect, "{text}");
    }

    #[test]
    fn good_json_has_no_complaint() {
        for text in ["{}", " [1, -0.5e+3, \"a\\u00e9\\n\", true, null, {\"a\": [], \"b\": {\"c\": 1}}] ", "0"]
        {
            check(text, "");
        }
    }

    #[test]
    fn the_words_are_those_of_go() {
        check("", "unexpected end of JSON input");
        check("{", "unexpected end of JSON input");
        check("{\"a\": 1", "unexpected end of JSON input");
        check("\"a", "unexpected end of JSON input");
        check("x", "invalid character 'x' looking for beginning of value");
        check("{a: 1}", "invalid character 'a' looking for beginning of object key string");
        check("{\"a\": 1,}", "invalid character '}' looking for beginning of object key string");
        check("[1,]", "invalid character ']' looking for beginning of value");
        check("{\"a\" 1}", "invalid character '1' after object key");
        check("{\"a\": 1 \"b\"}", "invalid character '\"' after object key:value pair");
        check("[1 2]", "invalid character '2' after array element");
        check("{} {}", "invalid character '{' after top-level value");
        check("tru", "invalid character ' ' in literal true (expecting 'e')");
        check("nulx", "invalid character 'x' in literal null (expecting 'l')");
        check("-", "invalid character ' ' in numeric literal");
        check("1.x", "invalid character 'x' after decimal point in numeric literal");
        check("1ex", "invalid character 'x' in exponent of numeric literal");
        check("01", "invalid character '1' after top-level value");
        check("\"\\x\"", "invalid character 'x' in string escape code");
        check("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape");
        check("\"\n\"", "invalid character '\\n' in string literal");
        check("\u{1}", "invalid character '\\x01' looking for beginning of value");
        check("é", "invalid character 'Ã' looking for beginning of value");
        check(&"[".repeat(10_001), "exceeded max depth");
    }
}
