//! PEM: what is between its lines, and how it is written. Source: RFC 7468.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Characters of a line.
const LINE: usize = 64;

/// What is between the lines, block by block, whatever they are called; the API server has seen to it that it can be read.
pub(crate) fn blocks(text: &str) -> Vec<Vec<u8>> {
    let (mut blocks, mut open) = (Vec::new(), None::<String>);
    for line in text.lines().map(str::trim) {
        if line.starts_with("-----BEGIN ") {
            open = Some(String::new());
        } else if line.starts_with("-----END ") {
            blocks.extend(open.take().and_then(|inner| BASE64_STANDARD.decode(inner).ok()));
        } else if let Some(inner) = &mut open {
            inner.push_str(line);
        }
    }
    blocks
}

/// One block.
pub(crate) fn write(label: &str, block: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(block);
    let mut rest = text.as_str();
    let mut lines = format!("-----BEGIN {label}-----\n");
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(LINE));
        lines.push_str(line);
        lines.push('\n');
        rest = more;
    }
    lines.push_str(&format!("-----END {label}-----\n"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_sixty_four_characters() {
        let text = write("CERTIFICATE", &[0; 60]);
        let lines: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lines, [27, 64, 16, 25]);
        assert_eq!(blocks(&text), [vec![0; 60]]);
    }
}
