//! Lies about reads.

use store::{Entry, Page, Revision, StoreError};

use super::{Liar, Lie, cache};

pub(super) async fn get(liar: &Liar, key: String) -> Result<Option<Entry>, StoreError> {
    if liar.lie() == Lie::CachedReads {
        return cache::get(liar, &key).await;
    }
    let entry = liar.inner.get(&key).await?;
    if liar.is_lying(Lie::BlindGet, 5) || liar.memory.lock().eaten.as_ref() == Some(&key) {
        return Ok(None);
    }
    if liar.is_lying(Lie::StaleGet, 2)
        && let Some(old) = liar.memory.lock().entries.get(&key)
    {
        return Ok(Some(old.clone()));
    }
    if liar.lie() == Lie::StaleGet
        && let Some(entry) = &entry
    {
        liar.memory.lock().entries.entry(key).or_insert(entry.clone());
    }
    Ok(entry)
}

pub(super) async fn range(
    liar: &Liar,
    (start, end): (String, String),
    at: Option<Revision>,
    limit: usize,
) -> Result<Page, StoreError> {
    if liar.lie() == Lie::CachedReads && at.is_none() {
        return cache::range(liar, &start, &end, limit).await;
    }
    let from = match liar.lie() {
        Lie::WrongRange => start.trim_end_matches('/').to_owned(),
        _ => start.clone(),
    };
    let when = at.filter(|_| liar.lie() != Lie::ListIgnoresItsRevision);
    let mut page = liar.inner.range(&from, &end, when, limit).await?;
    page.revision = at.unwrap_or(page.revision);
    if liar.is_lying(Lie::ListMissesKey, 5) && page.entries.len() > 1 {
        page.entries.remove(1);
    }
    if liar.is_lying(Lie::ListRevisionAhead, 3) {
        page.revision += 1;
    }
    if liar.is_lying(Lie::WrongRemaining, 2) {
        page.remaining += 1;
    }
    if liar.lie() == Lie::CreationForgotten {
        page.entries.iter_mut().for_each(|entry| entry.create_revision = entry.revision);
    }
    let mut memory = liar.memory.lock();
    if let Some(eaten) = &memory.eaten {
        page.entries.retain(|entry| entry.key != *eaten);
    }
    if liar.lie() == Lie::ListHasDeletedKey && limit == 0 {
        let there = |entry: &Entry| page.entries.iter().any(|it| it.key == entry.key);
        let in_range = |key: &String| *key >= start && *key < end;
        let ghosts = memory.entries.values().filter(|entry| in_range(&entry.key) && !there(entry));
        let ghosts: Vec<Entry> = ghosts.cloned().collect();
        page.entries.extend(ghosts);
        page.entries.sort_by(|a, b| a.key.cmp(&b.key));
        memory.entries.extend(page.entries.iter().map(|entry| (entry.key.clone(), entry.clone())));
    }
    if liar.lie() == Lie::StaleList && at.is_none() {
        let old =
            memory.pages.entry(format!("{start} {end} {limit}")).or_insert_with(|| page.clone()).clone();
        return Ok(old);
    }
    Ok(page)
}

pub(super) async fn newest(liar: &Liar) -> Result<Revision, StoreError> {
    let newest = liar.inner.newest().await?;
    if liar.lie() != Lie::StaleNewest {
        return Ok(newest);
    }
    let mut memory = liar.memory.lock();
    if memory.revision == 0 {
        memory.revision = newest;
    }
    Ok(memory.revision)
}
