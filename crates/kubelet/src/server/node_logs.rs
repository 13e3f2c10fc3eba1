//! `/logs/`: the host's `/var/log`, folders as lists of links. Reads only, and nothing outside of that folder.
//!
//! Source: upstream's `getLogs`, which is Go's file server; other than that, links that lead out of the folder are not
//! followed.

use std::path::{Path, PathBuf};

use http::{Response, StatusCode, header};

use super::{Body, Refusal, full, text};

const ROOT: &str = "/var/log";
/// Bytes of a file that are sent: its end.
const BYTES_MAX: u64 = 32 << 20;

/// What is under a path of the URL.
pub(super) async fn answer(path: &str) -> Result<Response<Body>, Refusal> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(Path::new(ROOT), &path));
    match read.await.map_err(|error| Refusal::internal(error.to_string()))?? {
        Found::File(bytes) => {
            let mut response = Response::new(full(bytes));
            let value = header::HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, value);
            Ok(response)
        }
        Found::Folder(names) => {
            let mut response = text(StatusCode::OK, list(&names));
            let value = header::HeaderValue::from_static("text/html; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, value);
            Ok(response)
        }
        Found::Elsewhere(location) => {
            let mut response = text(StatusCode::MOVED_PERMANENTLY, String::new());
            let value = header::HeaderValue::from_str(&location);
            let value = value.map_err(|error| Refusal::bad_request(error.to_string()))?;
            response.headers_mut().insert(header::LOCATION, value);
            Ok(response)
        }
    }
}

#[derive(Debug, PartialEq)]
enum Found {
    File(Vec<u8>),
    /// Names in order; those of folders end with a slash.
    Folder(Vec<String>),
    /// A folder is asked for with a slash at the end.
    Elsewhere(String),
}

fn not_found() -> Refusal {
    Refusal::not_found("404 page not found\n")
}

/// Blocking.
fn read(root: &Path, path: &str) -> Result<Found, Refusal> {
    let below = path.strip_prefix("/logs").unwrap_or_default().trim_start_matches('/');
    let below = percent_decoded(below).ok_or_else(not_found)?;
    let root = root.canonicalize().map_err(|_| not_found())?;
    let file: PathBuf = root.join(below).canonicalize().map_err(|_| not_found())?;
    if !file.starts_with(&root) {
        return Err(not_found());
    }
    let metadata = file.metadata().map_err(|_| not_found())?;
    if metadata.is_dir() && !path.ends_with('/') {
        let name = path.rsplit('/').next().unwrap_or_default();
        return Ok(Found::Elsewhere(format!("{name}/")));
    }
    if metadata.is_dir() {
        let entries = std::fs::read_dir(&file).map_err(|error| Refusal::internal(error.to_string()))?;
        let name = |entry: std::fs::DirEntry| {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_folder { format!("{name}/") } else { name }
        };
        let mut names: Vec<String> = entries.flatten().map(name).collect();
        names.sort();
        return Ok(Found::Folder(names));
    }
    // Pipes and devices would never end.
    if !metadata.is_file() {
        return Err(not_found());
    }
    end_of(&file, metadata.len()).map(Found::File).map_err(|error| Refusal::internal(error.to_string()))
}

fn end_of(file: &Path, length: u64) -> std::io::Result<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(file)?;
    file.seek(SeekFrom::Start(length.saturating_sub(BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// As Go's file server writes it.
fn list(names: &[String]) -> String {
    let escaped = |name: &str| {
        name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
    };
    let link = |name: &String| {
        let url: String = name
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                    char::from(byte).to_string()
                }
                byte => format!("%{byte:02X}"),
            })
            .collect();
        format!("<a href=\"{url}\">{}</a>\n", escaped(name))
    };
    let links: String = names.iter().map(link).collect();
    format!(
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n{links}</pre>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(root: &Path, path: &str, expect: Option<Found>) {
        assert_eq!(read(root, path).ok(), expect, "{path}");
    }

    #[test]
    fn files_and_folders_are_shown_and_nothing_outside() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("log");
        std::fs::create_dir_all(root.join("pods")).unwrap();
        std::fs::write(root.join("a b"), "text").unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
        let names = ["a b", "link", "pods/"].map(str::to_owned).to_vec();
        check(&root, "/logs/", Some(Found::Folder(names)));
        check(&root, "/logs", Some(Found::Elsewhere("logs/".into())));
        check(&root, "/logs/pods", Some(Found::Elsewhere("pods/".into())));
        check(&root, "/logs/a%20b", Some(Found::File(b"text".to_vec())));
        for path in [
            "/logs/link",
            "/logs/../secret",
            "/logs/%2e%2e/secret",
            "/logs//secret",
            "/logs/%zz",
            "/logs/%+9",
            "/logs/%4",
            "/logs/%",
            "/logs/%ff",
            "/logs/a%00b",
            "/logs/pods/../../secret",
            "/logs/pods/%2e%2e/%2e%2e/secret",
            "/logs/..%2fsecret",
            "/logs/a%20b/",
            "/logs/none",
        ] {
            check(&root, path, None);
        }
        assert!(list(&["a b".into()]).contains("<a href=\"a%20b\">a b</a>"));
    }
}
