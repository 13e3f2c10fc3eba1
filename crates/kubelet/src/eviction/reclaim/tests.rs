//! What can be won back of which disk: `TestNodeReclaimFuncs`, `buildSignalToNodeReclaimFuncs` of upstream's
//! `pkg/kubelet/eviction`.

use super::*;

#[test]
fn images_and_containers_are_looked_for_on_the_disk_that_is_short() {
    use Signal::{
        AllocatableMemoryAvailable, ImageFsAvailable, ImageFsInodesFree, MemoryAvailable, NodeFsAvailable,
        NodeFsInodesFree, PidAvailable,
    };
    let disks = [
        ("one disk", Devices { root: 1, images: 1, layers: 1 }, true),
        ("a disk for images and containers", Devices { root: 1, images: 2, layers: 2 }, false),
        ("a disk for images alone", Devices { root: 1, images: 2, layers: 1 }, true),
        ("a disk for containers alone", Devices { root: 1, images: 1, layers: 2 }, true),
        ("a disk for each", Devices { root: 1, images: 2, layers: 3 }, false),
    ];
    for (name, devices, of_node) in disks {
        for signal in [ImageFsAvailable, ImageFsInodesFree] {
            assert!(helps(signal, devices), "{name}: {signal:?}");
        }
        for signal in [NodeFsAvailable, NodeFsInodesFree] {
            assert_eq!(helps(signal, devices), of_node, "{name}: {signal:?}");
        }
        for signal in [MemoryAvailable, AllocatableMemoryAvailable, PidAvailable] {
            assert!(!helps(signal, devices), "{name}: {signal:?}");
        }
    }
}
