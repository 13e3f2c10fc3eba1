//! The cases of upstream's `balanced_allocation_test.go`.

use controller::pod::Pod;

use crate::fixtures::{allocatable, asking, asking_each, cluster, scores};
use crate::profile::{Profile, Profiles};

fn check(
    case: &str,
    resources: &[&str],
    pod: &Pod,
    nodes: [&str; 2],
    placed: &[(&str, Pod)],
    expect: Option<[i64; 2]>,
) {
    let [one, two] = nodes.map(allocatable);
    let mut snapshot = cluster(&[("a", "", &one), ("b", "", &two)], placed);
    let mut profile = Profile::default();
    profile.arguments.balance.resources = resources.iter().map(|name| (*name).to_owned()).collect();
    snapshot.profiles = Profiles::new(profile, Vec::new());
    let found = scores("NodeResourcesBalancedAllocation", pod, None, &snapshot);
    assert_eq!(found, expect.map(Vec::from), "{case}");
}

/// Before 1.36 only the balance with the Pod counts.
#[test]
fn like_shares_in_use_are_better() {
    let both = || asking_each(&["cpu: 1000m, memory: '2000'", "cpu: 2000m, memory: '3000'"]);
    let cpu = || asking_each(&["cpu: 1000m", "cpu: 2000m"]);
    let memory = asking_each(&["memory: '2000'", "memory: '3000'"]);
    let gpu = |amount: u32| asking(&format!("cpu: '0', memory: '0', nvidia.com/gpu: '{amount}'"));
    let basic: &[&str] = &["cpu", "memory"];
    let three: &[&str] = &["cpu", "memory", "nvidia.com/gpu"];
    let (small, large) = ("cpu: 4000m, memory: '10000'", "cpu: 10000m, memory: '20000'");
    let with_gpu = "cpu: 3500m, memory: '40000', nvidia.com/gpu: '8'";
    let used = [("a", cpu()), ("b", both())];
    let gpus = [("a", both()), ("a", gpu(3)), ("b", both())];
    for (case, resources, pod, nodes, placed, expect) in [
        ("who asks for nothing", basic, asking(""), [small, small], &[][..], None),
        ("75/50 and 50/50", basic, both(), [small, "cpu: 6000m, memory: '10000'"], &[], Some([87, 100])),
        ("60/25 and 60/50", basic, both(), [large, large], &used, Some([82, 95])),
        ("60/25 and 60/20", basic, both(), [large, "cpu: 10000m, memory: '50000'"], &used, Some([82, 80])),
        ("100/100 and 0/100", basic, memory, ["cpu: 3000m, memory: '5000'"; 2], &used[..1], Some([100, 50])),
        ("100/0 and 100/50", basic, cpu(), ["cpu: 6000m, memory: '10000'"; 2], &used, Some([50, 75])),
        ("gpus 50 and 12", three, gpu(1), [with_gpu; 2], &gpus, Some([70, 65])),
        ("no gpus", three, both(), [with_gpu, "cpu: 3500m, memory: '40000'"], &[], Some([63, 63])),
        ("more than there is", basic, both(), ["cpu: 1000m, memory: '1000'", ""], &[], Some([100, 100])),
    ] {
        check(case, resources, &pod, nodes, placed, expect);
    }
}
