//! The memory from before this process began: a file, and the store's own log.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use machinery::trace::Chain;
use store::{Event, Revision, Store, StoreError};
use tracing::{debug, warn};

use super::COMMITS_MAX;

/// A larger file is not read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads what [`save`] wrote. A file that is not whole is as good as none.
pub(super) fn load(file: &Path) -> Chain {
    let read = || {
        if std::fs::metadata(file)?.len() > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        serde_json::from_slice(&std::fs::read(file)?).map_err(std::io::Error::from)
    };
    match read() {
        Ok(chain) => chain,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                warn!(file = %file.display(), %error, "the trace of earlier runs cannot be read");
            }
            Chain::default()
        }
    }
}

/// Replaces the file.
pub(super) fn save(file: &Path, chain: &Chain) -> std::io::Result<()> {
    let new = file.with_added_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut writer =
        std::io::BufWriter::new(options.write(true).create(true).truncate(true).mode(0o600).open(&new)?);
    serde_json::to_writer(&mut writer, chain)?;
    writer.flush()?;
    std::fs::rename(&new, file)
}

/// The newest changes after `after` up to `upto`, as far as the store has them still.
pub(super) async fn read(store: &dyn Store, after: Revision, upto: Revision) -> VecDeque<Event> {
    let mut events = VecDeque::new();
    let mut after = after;
    while after < upto {
        match read_some(store, after, upto, &mut events).await {
            Ok(()) => break,
            Err(StoreError::Compacted { oldest, .. }) if oldest > after => after = oldest,
            Err(error) => {
                debug!(%error, "what the store remembers of earlier runs cannot be read");
                break;
            }
        }
    }
    events
}

async fn read_some(
    store: &dyn Store,
    after: Revision,
    upto: Revision,
    events: &mut VecDeque<Event>,
) -> Result<(), StoreError> {
    let mut watch = store.watch(after).await?;
    while let Some(batch) = watch.batches.recv().await {
        let batch = batch?;
        events.extend(batch.events.into_iter().filter(|event| event.revision <= upto).map(|event| Event {
            // What it was does not matter, and would be held until all is read.
            entry: event.entry.map(|entry| store::Entry { value: bytes::Bytes::new(), ..entry }),
            previous: None,
            ..event
        }));
        events.drain(..events.len().saturating_sub(COMMITS_MAX));
        if batch.upto >= upto {
            break;
        }
    }
    Ok(())
}
