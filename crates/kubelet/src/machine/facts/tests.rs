//! What the kernel's files say of the machine.

use super::*;

#[test]
fn amounts_of_memory_are_in_units_of_1024() {
    let text = "MemTotal:        8048056 kB\nMemFree:          500000 kB\nSwapTotal:             0 kB\nHugePages_Total:       3\nBroken: many kB\nEmpty:\n";
    for (name, expect) in [
        ("MemTotal:", 8_048_056 * 1024),
        ("MemFree:", 500_000 * 1024),
        ("SwapTotal:", 0),
        ("Broken:", 0),
        ("Empty:", 0),
        ("None:", 0),
        ("Mem", 0),
    ] {
        assert_eq!(meminfo(text, name), expect, "{name}");
    }
    assert_eq!(meminfo("", "MemTotal:"), 0);
}

#[test]
fn the_system_is_called_what_its_release_says() {
    for (text, expect) in [
        (
            "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian",
            "Debian GNU/Linux 13 (trixie)",
        ),
        ("PRETTY_NAME=Alpine", "Alpine"),
        ("PRETTY_NAME=\"\"", ""),
        ("NAME=\"Debian\"", "Linux"),
        ("#PRETTY_NAME=\"x\"", "Linux"),
        ("", "Linux"),
    ] {
        assert_eq!(os_image(text), expect, "{text}");
    }
}

#[test]
fn huge_pages_are_counted_by_their_size() {
    let folder = tempfile::tempdir().unwrap();
    for (name, count) in [
        ("hugepages-2048kB", "3\n"),
        ("hugepages-1048576kB", "0\n"),
        ("hugepages-64kB", "many"),
        ("hugepages-kB", "1"),
        ("hugepages-32MB", "1"),
        ("other", "1"),
    ] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("nr_hugepages"), count).unwrap();
    }
    std::fs::create_dir(folder.path().join("hugepages-16kB")).unwrap();
    assert_eq!(huge_pages(folder.path()), [(2 << 20, 3), (1 << 30, 0)]);
    assert!(huge_pages(&folder.path().join("none")).is_empty());
}

#[test]
fn the_machine_tells_when_it_began_and_how_many_processes_it_can_have() {
    assert!(boot_time().is_some_and(|boot| boot < Timestamp::now()));
    assert!(pids_max() > 0);
    assert!(storage(Path::new("/")) > 0 && storage(Path::new("/none")) == 0);
}
