//! One line of a container's log: `<time> <stdout|stderr> <tags> <content>`, or in Docker's JSON, which cri-dockerd writes.
//!
//! The first of the tags, which stand between colons, is `P` for a part of a line, which no line end follows, or `F`.
//! What is neither of both forms is no line at all: whoever shows a log leaves it out. Source: `parseCRILog`,
//! `parseDockerJSONLog` of upstream's `k8s.io/cri-client/pkg/logs`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;

/// What was printed where and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// As it is written, in RFC 3339.
    pub time: Cow<'a, str>,
    /// The same.
    pub at: Timestamp,
    /// `stdout` or `stderr`.
    pub stream: Cow<'a, str>,
    /// What was printed, with the line end if one follows.
    pub content: Cow<'a, [u8]>,
}

#[derive(Deserialize)]
struct Json<'a> {
    #[serde(default, borrow)]
    log: Cow<'a, str>,
    #[serde(default, borrow)]
    stream: Cow<'a, str>,
    #[serde(default, borrow)]
    time: Cow<'a, str>,
}

impl<'a> Record<'a> {
    /// The record in a line of a log, which ends with its line end if it is whole.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        if line.starts_with(b"{") { Self::from_json(line) } else { Self::from_cri(line) }
    }

    fn from_cri(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let [time, stream, tags, mut content] = [(); 4].map(|()| fields.next());
        let is_part = tags?.split(|byte| *byte == b':').next() == Some(b"P");
        if is_part {
            content = content.map(|content| content.strip_suffix(b"\n").unwrap_or(content));
        }
        let text = |field: Option<&'a [u8]>| std::str::from_utf8(field?).ok();
        Self::new(text(time)?.into(), text(stream)?.into(), content?.into())
    }

    fn from_json(line: &'a [u8]) -> Option<Self> {
        let Json { log, stream, time } = serde_json::from_slice(line).ok()?;
        let content = match log {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Self::new(time, stream, content)
    }

    fn new(time: Cow<'a, str>, stream: Cow<'a, str>, content: Cow<'a, [u8]>) -> Option<Self> {
        let at = time.parse().ok()?;
        matches!(&*stream, "stdout" | "stderr").then_some(Self { time, at, stream, content })
    }

    /// Whether what is printed next begins a line. Nothing at all ends one.
    pub fn ends_line(&self) -> bool {
        self.content.last().is_none_or(|byte| *byte == b'\n')
    }

    /// The time as it is shown: always with nine digits of a second. Source: `RFC3339NanoFixed`.
    pub fn shown_time(&self) -> String {
        let offset = self.time.rfind(['Z', 'z', '+', '-']).unwrap_or(self.time.len());
        let (time, offset) = self.time.split_at(offset);
        let (seconds, fraction) = time.split_once(['.', ',']).unwrap_or((time, ""));
        format!("{seconds}.{fraction:0<9.9}{offset}")
    }
}

#[cfg(test)]
mod tests;
