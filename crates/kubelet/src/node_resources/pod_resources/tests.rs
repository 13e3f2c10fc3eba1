//! How what containers have is told: `TestGetAllocatableResources`, `TestListPodResourcesV1` of upstream's
//! `pkg/kubelet/apis/podresources`, and `ContainerDevices` of its `devicemanager`.

use super::*;

#[test]
fn a_device_is_told_of_once_for_each_node_that_it_is_near() {
    let placed = |id: &str, nodes: &[i64]| Placed {
        resource: "example.com/gpu".into(),
        id: id.into(),
        nodes: nodes.to_vec(),
    };
    for (name, given, expect) in [
        ("nothing", vec![], ""),
        ("near nothing", vec![placed("a", &[])], "a@"),
        ("near one node", vec![placed("a", &[1])], "a@1"),
        ("near two nodes", vec![placed("a", &[0, 1])], "a@0 a@1"),
        ("several", vec![placed("b", &[1]), placed("a", &[]), placed("c", &[0, 3])], "b@1 a@ c@0 c@3"),
    ] {
        let shown = devices(given).into_iter().map(|device| {
            assert_eq!(
                (device.resource_name.as_str(), device.device_ids.len()),
                ("example.com/gpu", 1),
                "{name}"
            );
            let nodes: Vec<String> =
                device.topology.iter().flat_map(|info| &info.nodes).map(|node| node.id.to_string()).collect();
            format!("{}@{}", device.device_ids[0], nodes.join("+"))
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expect, "{name}");
    }
}

#[test]
fn memory_is_told_with_all_of_its_nodes() {
    for (nodes, size, expect) in [
        (&[][..], 1, "memory=1@"),
        (&[0], 1 << 30, "memory=1073741824@0"),
        (&[0, 1], 5, "memory=5@0+1"),
        (&[3], 0, "memory=0@3"),
        (&[3], -1, "memory=0@3"),
    ] {
        let block = Block { numa_affinity: nodes.to_vec(), resource: "memory".into(), size };
        let ContainerMemory { memory_type, size, topology } = of_block(block);
        let nodes: Vec<String> =
            topology.iter().flat_map(|info| &info.nodes).map(|node| node.id.to_string()).collect();
        assert_eq!(format!("{memory_type}={size}@{}", nodes.join("+")), expect);
    }
}
