//! The free pages of the data file, read from the file: the engine has a list and shows it to nobody.
//!
//! The list is a tree of pages, as tables are, by transaction: what a transaction has freed is seen by those who read
//! before it, and by nobody else. Source: `MDB_meta`, `MDB_page`, `MDB_node` and `mdb_page_alloc` in LMDB's `mdb.c`
//! (data version 1, numbers of 64 bits in the machine's order). Whatever is not exactly so is an error, and so is a file
//! of which used and free pages together are not all: from a list that is not understood nothing follows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: u32 = 0xBEEF_C0DE;
const DATA_VERSION: u32 = 1;
const PAGE_HEAD_BYTES: usize = 16;
const NODE_HEAD_BYTES: usize = 8;
/// Flags of a page, of which it has one.
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const META: u16 = 8;
/// Flag of a node: its data has pages of its own.
const BIG_DATA: u16 = 1;
/// The root of a tree that has no page.
const NO_PAGE: u64 = u64::MAX;
/// Both metas.
const META_PAGES: u64 = 2;
/// Levels of a tree; the engine itself goes no deeper. Source: `CURSOR_STACK`.
const DEPTH_MAX: u16 = 32;

/// The list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FreePages {
    /// The newest committed transaction.
    pub(super) newest: u64,
    /// By the transaction that has freed them.
    pub(super) by_transaction: Vec<(u64, Vec<u64>)>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unclear {
    #[error("cannot read it")]
    Io(#[from] io::Error),
    #[error("{0} is not as expected")]
    Layout(&'static str),
    #[error("{used} used and {free} free pages are not {all}")]
    Sum { used: u64, free: u64, all: u64 },
}

/// Reads the list of a file that nobody writes to meanwhile, whose tables have so many pages.
///
/// # Errors
/// If anything is not as expected.
pub(super) fn read(file: &File, page_bytes: usize, table_pages: u64) -> Result<FreePages, Unclear> {
    let pages = Pages { file, page_bytes };
    let (first, second) = (pages.meta(0)?, pages.meta(1)?);
    let meta = if first.transaction > second.transaction { first } else { second };
    let mut by_transaction = Vec::new();
    if meta.free.root != NO_PAGE {
        if meta.free.depth > DEPTH_MAX {
            return Err(Unclear::Layout("the list's depth"));
        }
        // Each page is in the tree once: one that is damaged may lead back to itself.
        let mut left = meta.free.pages.min(file.metadata()?.len() / (page_bytes as u64).max(1));
        pages.collect(meta.free.root, meta.free.depth, &mut left, &mut by_transaction)?;
    }
    let mut listed: Vec<u64> = by_transaction.iter().flat_map(|(_, pages)| pages).copied().collect();
    let free = listed.len() as u64;
    listed.sort_unstable();
    listed.dedup();
    let is_within = listed.first().is_none_or(|first| *first >= META_PAGES)
        && listed.last().is_none_or(|last| *last <= meta.last_page);
    if listed.len() as u64 != free || !is_within {
        return Err(Unclear::Layout("the list"));
    }
    let used =
        [meta.free.pages, meta.main.pages, table_pages].into_iter().fold(META_PAGES, u64::saturating_add);
    let all = meta.last_page.saturating_add(1);
    if used.saturating_add(free) != all {
        return Err(Unclear::Sum { used, free, all });
    }
    Ok(FreePages { newest: meta.transaction, by_transaction })
}

struct Meta {
    transaction: u64,
    last_page: u64,
    free: Tree,
    main: Tree,
}

struct Tree {
    depth: u16,
    pages: u64,
    root: u64,
}

impl Meta {
    fn decode(page: &[u8], page_bytes: usize) -> Option<Self> {
        const TREES_AT: usize = PAGE_HEAD_BYTES + 24;
        const TREE_BYTES: usize = 48;
        let is_known = u32_at(page, PAGE_HEAD_BYTES)? == MAGIC
            && u32_at(page, PAGE_HEAD_BYTES + 4)? == DATA_VERSION
            && usize::try_from(u32_at(page, TREES_AT)?).ok()? == page_bytes;
        let tree = |at: usize| {
            let parts = [8, 16, 24].map(|part| u64_at(page, at + part));
            let pages = parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part?))?;
            Some(Tree { depth: u16_at(page, at + 6)?, pages, root: u64_at(page, at + 40)? })
        };
        let after = TREES_AT + 2 * TREE_BYTES;
        let (free, main) = (tree(TREES_AT)?, tree(TREES_AT + TREE_BYTES)?);
        let (last_page, transaction) = (u64_at(page, after)?, u64_at(page, after + 8)?);
        is_known.then_some(Self { transaction, last_page, free, main })
    }
}

struct Pages<'f> {
    file: &'f File,
    page_bytes: usize,
}

impl Pages<'_> {
    fn meta(&self, number: u64) -> Result<Meta, Unclear> {
        let page = self.page(number)?;
        let meta = Meta::decode(&page, self.page_bytes).filter(|_| flags(&page) == Some(META));
        meta.ok_or(Unclear::Layout("a meta page"))
    }

    fn page(&self, number: u64) -> Result<Vec<u8>, Unclear> {
        let page = self.bytes(number, self.page_bytes)?;
        if u64_at(&page, 0) == Some(number) { Ok(page) } else { Err(Unclear::Layout("a page's number")) }
    }

    fn bytes(&self, number: u64, bytes: usize) -> Result<Vec<u8>, Unclear> {
        let at = number.checked_mul(self.page_bytes as u64).ok_or(Unclear::Layout("a page's number"))?;
        let mut content = vec![0; bytes];
        self.file.read_exact_at(&mut content, at)?;
        Ok(content)
    }

    /// All below a page of the list's tree.
    fn collect(
        &self,
        number: u64,
        depth: u16,
        left: &mut u64,
        into: &mut Vec<(u64, Vec<u64>)>,
    ) -> Result<(), Unclear> {
        let depth = depth.checked_sub(1).ok_or(Unclear::Layout("the list's depth"))?;
        *left = left.checked_sub(1).ok_or(Unclear::Layout("the list's pages"))?;
        let page = self.page(number)?;
        let broken = || Unclear::Layout("a page of the list");
        let is_leaf = match (flags(&page), depth) {
            (Some(LEAF), 0) => true,
            (Some(BRANCH), 1..) => false,
            _ => return Err(broken()),
        };
        for node in nodes(&page).ok_or_else(broken)? {
            match is_leaf {
                true => into.push(self.record(node).ok_or_else(broken)??),
                false => self.collect(child(node).ok_or_else(broken)?, depth, left, into)?,
            }
        }
        Ok(())
    }

    /// A transaction and the pages that it has freed.
    fn record(&self, node: &[u8]) -> Option<Result<(u64, Vec<u64>), Unclear>> {
        const KEY_BYTES: usize = 8;
        let data_bytes = usize::from(u16_at(node, 0)?) | usize::from(u16_at(node, 2)?) << 16;
        let transaction = u64_at(node, NODE_HEAD_BYTES)?;
        let data_at = NODE_HEAD_BYTES + KEY_BYTES;
        if usize::from(u16_at(node, 6)?) != KEY_BYTES {
            return None;
        }
        let list = match u16_at(node, 4)? {
            0 => numbers(node.get(data_at..data_at.checked_add(data_bytes)?)?),
            BIG_DATA => match self.big(u64_at(node, data_at)?, data_bytes) {
                Ok(data) => numbers(&data),
                Err(unclear) => return Some(Err(unclear)),
            },
            _ => None,
        };
        Some(Ok((transaction, list?)))
    }

    /// Data that has pages of its own.
    fn big(&self, number: u64, data_bytes: usize) -> Result<Vec<u8>, Unclear> {
        if flags(&self.page(number)?) != Some(OVERFLOW) {
            return Err(Unclear::Layout("a long part of the list"));
        }
        Ok(self.bytes(number, PAGE_HEAD_BYTES + data_bytes)?.split_off(PAGE_HEAD_BYTES))
    }
}

fn flags(page: &[u8]) -> Option<u16> {
    u16_at(page, 10)
}

/// The nodes of a page, each from its beginning to the end of the page.
fn nodes(page: &[u8]) -> Option<Vec<&[u8]>> {
    let count = usize::from(u16_at(page, 12)?).checked_sub(PAGE_HEAD_BYTES)? / 2;
    (0..count).map(|n| page.get(usize::from(u16_at(page, PAGE_HEAD_BYTES + 2 * n)?)..)).collect()
}

/// The page that a branch's node points to.
fn child(node: &[u8]) -> Option<u64> {
    let [low, middle, high] = [0, 2, 4].map(|at| u16_at(node, at).map(u64::from));
    Some(low? | middle? << 16 | high? << 32)
}

/// A count, and as many numbers.
fn numbers(data: &[u8]) -> Option<Vec<u64>> {
    let count = usize::try_from(u64_at(data, 0)?).ok()?;
    let (list, rest) = data.get(8..)?.as_chunks::<8>();
    (rest.is_empty() && count <= list.len())
        .then(|| list.iter().take(count).map(|n| u64::from_ne_bytes(*n)).collect())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
