//! Files that are laid out by hand: two meta pages and the pages of the list.

use std::io::Write;

use super::*;

const PAGE: usize = 256;

/// A page of which the head says this.
fn page(number: u64, flags: u16, lower: u16) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[..8].copy_from_slice(&number.to_ne_bytes());
    page[10..12].copy_from_slice(&flags.to_ne_bytes());
    page[12..14].copy_from_slice(&lower.to_ne_bytes());
    page
}

/// The facts of a meta page that tests change.
#[derive(Clone, Copy)]
struct Facts {
    transaction: u64,
    last_page: u64,
    depth: u16,
    root: u64,
    list_pages: u64,
    main_pages: u64,
}

fn meta(number: u64, facts: Facts) -> Vec<u8> {
    let mut page = page(number, META, 0);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &MAGIC.to_ne_bytes());
    put(20, &DATA_VERSION.to_ne_bytes());
    put(40, &u32::try_from(PAGE).unwrap().to_ne_bytes());
    put(46, &facts.depth.to_ne_bytes());
    put(48, &facts.list_pages.to_ne_bytes());
    put(80, &facts.root.to_ne_bytes());
    put(88 + 8, &facts.main_pages.to_ne_bytes());
    put(88 + 40, &NO_PAGE.to_ne_bytes());
    put(136, &facts.last_page.to_ne_bytes());
    put(144, &facts.transaction.to_ne_bytes());
    page
}

/// A page with these nodes, from its end to the front.
fn with_nodes(number: u64, flags: u16, nodes: &[Vec<u8>]) -> Vec<u8> {
    let mut page = page(number, flags, u16::try_from(PAGE_HEAD_BYTES + 2 * nodes.len()).unwrap());
    let mut end = PAGE;
    for (n, node) in nodes.iter().enumerate() {
        end -= node.len();
        page[end..end + node.len()].copy_from_slice(node);
        let at = PAGE_HEAD_BYTES + 2 * n;
        page[at..at + 2].copy_from_slice(&u16::try_from(end).unwrap().to_ne_bytes());
    }
    page
}

/// What a transaction has freed, as a leaf has it.
fn record(transaction: u64, pages: &[u64]) -> Vec<u8> {
    let mut data = (pages.len() as u64).to_ne_bytes().to_vec();
    data.extend(pages.iter().flat_map(|page| page.to_ne_bytes()));
    let mut node = u32::try_from(data.len()).unwrap().to_ne_bytes().to_vec();
    node.extend(0_u16.to_ne_bytes());
    node.extend(8_u16.to_ne_bytes());
    node.extend(transaction.to_ne_bytes());
    node.extend(data);
    node
}

fn branch(child: u64) -> Vec<u8> {
    let mut node = u32::try_from(child).unwrap().to_ne_bytes().to_vec();
    node.extend([0; 4]);
    node
}

fn check(pages: &[Vec<u8>]) -> Result<FreePages, Unclear> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&pages.concat()).unwrap();
    read(&file, PAGE, 1)
}

/// Two metas, a leaf with two free pages, a page of the main table, a page of a table, and those that are free.
fn sound() -> (Facts, Vec<Vec<u8>>) {
    let facts = Facts { transaction: 7, last_page: 6, depth: 1, root: 2, list_pages: 1, main_pages: 1 };
    let old = Facts { transaction: 6, root: NO_PAGE, ..facts };
    let leaf = with_nodes(2, LEAF, &[record(5, &[5, 4]), record(6, &[])]);
    (
        facts,
        vec![
            meta(0, old),
            meta(1, facts),
            leaf,
            page(3, LEAF, 16),
            page(4, LEAF, 16),
            page(5, LEAF, 16),
            page(6, LEAF, 16),
        ],
    )
}

fn changed(change: impl Fn(&mut Facts)) -> Result<FreePages, Unclear> {
    let (mut facts, mut pages) = sound();
    change(&mut facts);
    pages[1] = meta(1, facts);
    check(&pages)
}

#[test]
fn the_newer_of_both_metas_counts() {
    let (facts, mut pages) = sound();
    let list = FreePages { newest: 7, by_transaction: vec![(5, vec![5, 4]), (6, vec![])] };
    assert_eq!(check(&pages).unwrap(), list);
    pages.swap(0, 1);
    pages[0] = meta(0, facts);
    pages[1] = meta(1, Facts { transaction: 3, root: 99, ..facts });
    assert_eq!(check(&pages).unwrap(), list);
}

#[test]
fn a_list_of_several_pages_is_read_in_order() {
    let (facts, mut pages) = sound();
    pages[2] = with_nodes(2, LEAF, &[record(5, &[5])]);
    pages[3] = with_nodes(3, BRANCH, &[branch(2), branch(6)]);
    pages[6] = with_nodes(6, LEAF, &[record(6, &[4])]);
    // The table's own page is none of these seven.
    pages.push(page(7, LEAF, 16));
    pages[1] = meta(1, Facts { depth: 2, root: 3, list_pages: 3, main_pages: 0, last_page: 7, ..facts });
    assert_eq!(check(&pages).unwrap().by_transaction, [(5, vec![5]), (6, vec![4])]);
}

#[test]
fn what_does_not_add_up_is_no_list() {
    assert!(matches!(changed(|it| it.last_page = 7), Err(Unclear::Sum { used: 5, free: 2, all: 8 })));
    assert!(changed(|it| it.main_pages = u64::MAX).is_err());
    assert!(changed(|it| it.list_pages = u64::MAX - 1).is_err());
    assert!(matches!(changed(|it| it.last_page = u64::MAX), Err(Unclear::Sum { .. })));
    assert!(matches!(changed(|it| it.last_page = 4), Err(Unclear::Layout("the list"))), "beyond the last");
    for (name, freed) in
        [("a page twice", [5, 5]), ("a meta page", [5, 1]), ("one that is not there", [5, 7])]
    {
        let (_, mut pages) = sound();
        pages[2] = with_nodes(2, LEAF, &[record(5, &freed)]);
        assert!(matches!(check(&pages), Err(Unclear::Layout("the list"))), "{name}");
    }
}

#[test]
fn a_tree_that_leads_back_to_itself_ends() {
    for depth in [2, 3, 31, 32, 33, u16::MAX] {
        let (facts, mut pages) = sound();
        for list_pages in [1, 3, 7, 1 << 40] {
            pages[1] = meta(1, Facts { depth, root: 3, list_pages, ..facts });
            pages[3] = with_nodes(3, BRANCH, &vec![branch(3); 8]);
            assert!(matches!(check(&pages), Err(Unclear::Layout(_))), "depth {depth}, {list_pages} pages");
        }
    }
    assert!(matches!(changed(|it| it.depth = 0), Err(Unclear::Layout("the list's depth"))));
    assert!(
        matches!(changed(|it| it.depth = 2), Err(Unclear::Layout("a page of the list"))),
        "a leaf too early"
    );
    for root in [7, 1 << 40, u64::MAX - 1] {
        assert!(changed(|it| it.root = root).is_err(), "{root}");
    }
}

#[test]
fn no_changed_byte_makes_it_fail_otherwise_than_by_saying_so() {
    let (_, pages) = sound();
    let whole = check(&pages).unwrap();
    for page in 0..3 {
        for bit in 0..PAGE * 8 {
            let mut changed = pages.clone();
            changed[page][bit / 8] ^= 1 << (bit % 8);
            // Numbers of pages and transactions have no checksum: what is read is still a list of as many pages.
            if let Ok(read) = check(&changed) {
                let count = |list: &FreePages| {
                    list.by_transaction.iter().map(|(_, pages)| pages.len()).sum::<usize>()
                };
                assert_eq!(count(&read), count(&whole), "page {page}, bit {bit}");
            }
        }
    }
    let bytes = pages.concat();
    for cut in (0..3 * PAGE).step_by(7) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes[..cut]).unwrap();
        assert!(read(&file, PAGE, 1).is_err(), "cut at {cut}");
    }
}
