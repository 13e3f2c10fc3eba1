//! Machines of upstream's tests, by name.

use super::*;

const MACHINES: &str = include_str!("machines.txt");

/// The machine of that name.
pub(in super::super) fn machine(name: &str) -> Arc<Layout> {
    let line = MACHINES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" | "));
    let mut layout = Layout::default();
    for part in line.unwrap_or_else(|| panic!("no machine {name}")).split(" | ") {
        let words: Vec<&str> = part.split_whitespace().collect();
        let [node, socket, cache] = [0, 1, 2].map(|index: usize| words[index].parse().unwrap());
        for cores in &words[3..] {
            let threads: Vec<Vec<usize>> = cores.split('+').map(in_order).collect();
            for (index, core) in threads[0].iter().copied().enumerate() {
                let place = Place { node, socket, core, cache };
                layout.cpus.extend(threads.iter().map(|all| (all[index], place)));
            }
        }
    }
    Arc::new(layout)
}

fn in_order(list: &str) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().unwrap();
    let of = |part: &str| match part.split_once('-') {
        Some((first, last)) => (number(first)..=number(last)).collect::<Vec<_>>(),
        None => vec![number(part)],
    };
    list.split(',').flat_map(of).collect()
}

/// A table's rows of so many columns; `-` is empty.
pub(in super::super) fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let row: Vec<&str> = line.split(" | ").map(|word| if word == "-" { "" } else { word }).collect();
        row.try_into().unwrap_or_else(|_| panic!("{line}"))
    })
}
