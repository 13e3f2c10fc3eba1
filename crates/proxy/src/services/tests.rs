use std::fmt::Write;

use serde_json::{Value, json};
use sys::nftables::Table;

use super::*;
use crate::NodePortAddresses;
use crate::render;

fn config() -> Config {
    Config {
        cluster_id: "test".into(),
        node_name: "node-a".into(),
        node_ips: vec![[192, 0, 2, 1].into()],
        service_cidrs: "10.43.0.0/16".parse().unwrap(),
        cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
        local_addresses: Vec::new(),
        node_port_addresses: NodePortAddresses::Primary,
        healthz_address: None,
        metrics_address: None,
    }
}

/// A few Services that want the same addresses, ports and endpoints, in a random state of the world.
fn world(random: &mut Random) -> Changed {
    let mut changed = Changed::default();
    for n in 0..5u8 {
        let key = format!("ns/s{n}");
        let of = |range: u64, random: &mut Random| random.below(range) as u8;
        let service = (random.below(4) > 0).then(|| {
            let mut spec = json!({
                "clusterIP": format!("10.43.0.{}", of(4, random)),
                "type": "LoadBalancer",
                "ports": [{"port": 80, "nodePort": 30_000 + random.below(3)}],
                "externalIPs": [format!("198.51.100.{}", of(3, random)), format!("10.43.0.{}", of(4, random))],
            });
            for field in ["internalTrafficPolicy", "externalTrafficPolicy"] {
                spec[field] = ["Cluster", "Local"][random.below(2) as usize].into();
            }
            if random.below(3) == 0 {
                spec["sessionAffinity"] = "ClientIP".into();
                spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10 + random.below(2)}});
            }
            if random.below(3) == 0 {
                spec["loadBalancerSourceRanges"] = json!(["203.0.113.0/24"]);
            }
            let status = json!({"loadBalancer": {"ingress": [{"ip": format!("198.51.100.{}", of(3, random))}]}});
            let metadata = json!({"namespace": "ns", "name": format!("s{n}")});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap())
        });
        changed.services.push((key.clone(), None, service));
        let slice = (random.below(4) > 0).then(|| {
            let endpoints: Vec<Value> = (0..random.below(4))
                .map(|_| {
                    let node = ["node-a", "node-b"][random.below(2) as usize];
                    json!({"addresses": [format!("10.42.0.{}", of(4, random))], "nodeName": node})
                })
                .collect();
            // Slices that go over to another Service, too.
            let labels = json!({"kubernetes.io/service-name": format!("s{}", of(5, random))});
            let metadata = json!({"namespace": "ns", "name": format!("slice{n}"), "labels": labels});
            let slice = json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": endpoints});
            Arc::new(serde_json::from_value(slice).unwrap())
        });
        changed.slices.push((format!("ns/slice{n}"), None, slice));
    }
    let address = |random: &mut Random| IpAddr::from([198, 51, 100, random.below(3) as u8]);
    let zone = (random.below(2) == 0).then(|| "east".to_owned());
    changed.nodes = Some(Nodes { addresses: [address(random)].into(), zone, ..Nodes::default() });
    changed
}

/// xorshift64*: the same from one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// What of `next` is different; slices and Services that are the same are left out by chance only.
fn news(known: &Changed, next: &Changed) -> Changed {
    let pair = |known: &Changed, next: &Changed| Changed {
        services: std::iter::zip(&known.services, &next.services)
            .map(|((key, _, old), (_, _, new))| (key.clone(), old.clone(), new.clone()))
            .collect(),
        slices: std::iter::zip(&known.slices, &next.slices)
            .map(|((key, _, old), (_, _, new))| (key.clone(), old.clone(), new.clone()))
            .collect(),
        nodes: next.nodes.clone(),
    };
    pair(known, next)
}

/// Tables with the difference carried out, without the kernel.
fn carry_out(tables: &mut [Table], difference: &Difference, config: &Config) {
    let (before, after) = (render::part(&difference.before, config), render::part(&difference.after, config));
    assert_eq!((before.len(), after.len()), (tables.len(), tables.len()));
    for ((table, before), after) in tables.iter_mut().zip(&before).zip(after) {
        carry_out_one(table, before, after);
    }
}

fn carry_out_one(table: &mut Table, before: &Table, after: Table) {
    for (name, chain) in &before.chains {
        assert_eq!(table.chains.remove(name).as_ref(), Some(chain), "{name}");
    }
    for (name, chain) in after.chains {
        assert!(table.chains.insert(name.clone(), chain).is_none(), "{name}");
    }
    for (name, set) in &before.sets {
        for (key, data) in &set.elements {
            let elements = &mut table.sets.get_mut(name).unwrap().elements;
            assert_eq!(elements.remove(key).as_ref(), Some(data), "{name}: {key:?}");
        }
        if set.timeout.is_some() {
            table.sets.remove(name);
        }
    }
    for (name, set) in after.sets {
        let known = table.sets.entry(name.clone()).or_insert_with(|| {
            let mut empty = set.clone();
            empty.elements.clear();
            empty
        });
        for (key, data) in set.elements {
            assert!(known.elements.insert(key.clone(), data).is_none(), "{name}: {key:?}");
        }
    }
}

/// Chains and elements with the numbers of rows put in order, as they are others for who has seen less.
fn shape(part: &Part) -> String {
    let mut text = String::new();
    for row in &part.rows {
        writeln!(text, "{:?} {:?}", row.port, row.leads).unwrap();
    }
    write!(text, "{:?}", part.loops).unwrap();
    text
}

#[test]
fn differences_add_up_to_what_is_made_from_nothing() {
    for seed in 1..40 {
        let mut random = Random(seed);
        let config = Arc::new(config());
        let mut services = Services::new(config.clone());
        let mut known = world(&mut random);
        services.update(news(&Changed::default(), &known));
        services.update(Changed {
            services: known.services.clone(),
            slices: known.slices.clone(),
            nodes: known.nodes.clone(),
        });
        let mut table = render::whole(&services.whole(), &config);
        for step in 0..12 {
            let next = world(&mut random);
            let difference = services.update(news(&known, &next));
            carry_out(&mut table, &difference, &config);
            assert_eq!(table, render::whole(&services.whole(), &config), "seed {seed}, step {step}");
            let mut fresh = Services::new(config.clone());
            fresh.update(Changed {
                services: next.services.clone(),
                slices: next.slices.clone(),
                nodes: next.nodes.clone(),
            });
            assert_eq!(shape(&services.whole()), shape(&fresh.whole()), "seed {seed}, step {step}");
            for family in [Family::V4, Family::V6] {
                assert_eq!(services.without_local(family), fresh.without_local(family));
            }
            assert_eq!(services.update(news(&next, &next)).after, Part::default(), "nothing is different");
            known = next;
        }
    }
}
