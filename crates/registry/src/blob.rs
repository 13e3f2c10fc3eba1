//! A blob into a file, however often the connection breaks: what is there already is not asked for again.
//!
//! The file holds the beginning of the blob and nothing else, also between two calls; when the call has succeeded, it
//! holds the blob, checked against its digest and on disk.

use std::io::SeekFrom;
use std::path::Path;

use http::header::{CONTENT_RANGE, HeaderMap, HeaderValue, RANGE};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufWriter};

use crate::client::Session;
use crate::digest::Hasher;
use crate::document::Descriptor;
use crate::error::Error;
use crate::transport::{Ask, failure, next_piece};

/// Largest blob that does not say how large it is.
const BLOB_BYTES_MAX: u64 = 64 << 30;
/// Breaks in a row without a single byte between them, after which the download is given up.
const BREAKS_MAX: u32 = 6;
/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

impl Session {
    /// Downloads a blob to the file at `path`, going on from what the file has. `progress` is told of every piece, and of
    /// what was there.
    ///
    /// # Errors
    /// It is not there, or damaged at every source, or nobody answers for long enough; or the disk failed.
    pub async fn blob(
        &self,
        descriptor: &Descriptor,
        path: &Path,
        progress: &(dyn Fn(i64) + Send + Sync),
    ) -> Result<(), Error> {
        let mut download = Download::open(self, descriptor, path, progress).await?;
        let sources = self.sources(descriptor);
        let mut backoff = self.backoff();
        let (mut breaks, mut refusals) = (0, 0);
        // A machine that lost its power may have lost pieces of the file with it.
        let mut is_inherited = download.len > 0;
        for source in sources.iter().cycle() {
            let before = download.len;
            let result = match download.is_whole() {
                true => Ok(()),
                false => download.go_on(source).await,
            };
            let result = match result {
                Ok(()) => download.check().await,
                error => error,
            };
            let Err(error) = result else { return download.finish().await };
            if matches!(error, Error::Io { .. }) {
                return Err(error);
            }
            if download.len > before {
                (breaks, refusals) = (0, 0);
                backoff.reset();
            }
            match &error {
                Error::Digest { .. } if std::mem::take(&mut is_inherited) => continue,
                error if error.is_transient() => breaks += 1,
                _ => refusals += 1,
            }
            if breaks >= BREAKS_MAX || refusals >= sources.len() {
                return Err(error);
            }
            tracing::debug!(blob = %descriptor.digest, at = download.len, %error, "a download broke off");
            if error.is_transient() {
                tokio::time::sleep(backoff.next(&self.client.random)).await;
            }
        }
        Err(Error::Unexpected("there is no place to ask".into()))
    }

    /// Every host, then the URLs of a foreign layer.
    fn sources(&self, descriptor: &Descriptor) -> Vec<Source> {
        let urls = descriptor.urls.iter().filter(|url| url.starts_with("https://"));
        (0..self.hosts.len()).map(Source::Host).chain(urls.cloned().map(Source::Url)).collect()
    }
}

enum Source {
    /// By its number.
    Host(usize),
    /// Without credentials.
    Url(String),
}

struct Download<'a> {
    session: &'a Session,
    descriptor: &'a Descriptor,
    file: BufWriter<File>,
    /// Bytes in the file.
    len: u64,
    hasher: Hasher,
    progress: &'a (dyn Fn(i64) + Send + Sync),
}

impl<'a> Download<'a> {
    async fn open(
        session: &'a Session,
        descriptor: &'a Descriptor,
        path: &Path,
        progress: &'a (dyn Fn(i64) + Send + Sync),
    ) -> Result<Self, Error> {
        let doing = || format!("open the download {}", path.display());
        let mut options = File::options();
        let file = options.create(true).truncate(false).read(true).write(true).open(path).await;
        let mut file = file.map_err(Error::io(doing()))?;
        let mut hasher = descriptor.digest.hasher();
        let mut len = 0;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = file.read(&mut buffer).await.map_err(Error::io(doing()))?;
            if read == 0 {
                break;
            }
            hasher.update(buffer.get(..read).unwrap_or_default());
            len += read as u64;
        }
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let mut download = Self { session, descriptor, file, len, hasher, progress };
        progress(i64::try_from(len).unwrap_or(i64::MAX));
        if len > download.limit() {
            download.start_over().await?;
        }
        Ok(download)
    }

    fn limit(&self) -> u64 {
        if self.descriptor.size > 0 { self.descriptor.size } else { BLOB_BYTES_MAX }
    }

    fn is_whole(&self) -> bool {
        self.descriptor.size > 0 && self.len == self.descriptor.size
    }

    /// Asks for the rest, and takes what comes.
    async fn go_on(&mut self, source: &Source) -> Result<(), Error> {
        let answer = self.ask(source).await?;
        if answer.status() != StatusCode::PARTIAL_CONTENT || !self.continues(&answer) {
            self.start_over().await?;
        }
        let mut body = answer.into_body();
        let what = format!("the download of {}", self.descriptor.digest);
        let result = loop {
            match next_piece(&mut body, &what).await {
                Ok(Some(piece)) if self.len + piece.len() as u64 > self.limit() => {
                    break Err(Error::TooLarge {
                        what: format!("blob {}", self.descriptor.digest),
                        limit: self.limit(),
                    });
                }
                Ok(Some(piece)) => self.take(&piece).await?,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.file.flush().await.map_err(Error::io("write a download"))?;
        if matches!(result, Err(Error::TooLarge { .. })) {
            self.start_over().await?;
        }
        if result.is_ok() && self.descriptor.size > 0 && self.len < self.descriptor.size {
            let (len, size) = (self.len, self.descriptor.size);
            return Err(Error::Unavailable(format!("{what} broke off: {len} of {size} bytes came")));
        }
        result
    }

    async fn ask(&self, source: &Source) -> Result<Response<Incoming>, Error> {
        let mut headers = HeaderMap::new();
        if self.len > 0
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={}-", self.len))
        {
            headers.insert(RANGE, range);
        }
        match source {
            Source::Host(number) => {
                let missing = || Error::Unexpected("there is no such place".into());
                let host = self.session.hosts.get(*number).ok_or_else(missing)?;
                let what = format!("blobs/{}", self.descriptor.digest);
                let answer = self.session.ask(host, Method::GET, &what, headers.clone()).await;
                match answer {
                    // The range is not to its liking: all of it, then.
                    Err(Error::Unexpected(_)) if self.len > 0 => {
                        self.session.ask(host, Method::GET, &what, HeaderMap::new()).await
                    }
                    other => other,
                }
            }
            Source::Url(url) => {
                let ask = Ask { headers, ..Ask::get(url.clone()) };
                let answer = self.session.client.transport.send(&ask).await?;
                if answer.status().is_success() {
                    return Ok(answer);
                }
                Err(failure(&ask.method, url, answer).await)
            }
        }
    }

    /// Whether a partial answer begins where the file ends.
    fn continues(&self, answer: &Response<Incoming>) -> bool {
        let range = answer.headers().get(CONTENT_RANGE).and_then(|it| it.to_str().ok());
        let first =
            range.and_then(|range| range.trim().strip_prefix("bytes ")?.split('-').next()?.parse().ok());
        first == Some(self.len)
    }

    async fn take(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.file.write_all(piece).await.map_err(Error::io("write a download"))?;
        self.hasher.update(piece);
        self.len += piece.len() as u64;
        (self.progress)(i64::try_from(piece.len()).unwrap_or(i64::MAX));
        Ok(())
    }

    async fn start_over(&mut self) -> Result<(), Error> {
        let doing = "start a download over";
        self.file.flush().await.map_err(Error::io(doing))?;
        let file = self.file.get_mut();
        file.set_len(0).await.map_err(Error::io(doing))?;
        file.seek(SeekFrom::Start(0)).await.map_err(Error::io(doing))?;
        (self.progress)(-i64::try_from(self.len).unwrap_or(i64::MAX));
        self.len = 0;
        self.hasher = self.descriptor.digest.hasher();
        Ok(())
    }

    /// Whether what came is what was asked for. What is not, is thrown away.
    async fn check(&mut self) -> Result<(), Error> {
        let actual = std::mem::replace(&mut self.hasher, self.descriptor.digest.hasher()).finish();
        if actual == self.descriptor.digest {
            return Ok(());
        }
        self.start_over().await?;
        Err(Error::Digest {
            what: "a blob".into(),
            expected: self.descriptor.digest.to_string(),
            actual: actual.to_string(),
        })
    }

    async fn finish(mut self) -> Result<(), Error> {
        self.file.flush().await.map_err(Error::io("write a download"))?;
        self.file.get_ref().sync_data().await.map_err(Error::io("sync a download"))
    }
}
