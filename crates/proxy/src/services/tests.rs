use std::fmt::Write;

use serde_json::{Value, json};
use sys::nftables::Table;

use super::*;
use crate::families::{BOTH, config, ip, told};
use crate::render;

/// A few Services that want the same addresses, ports and endpoints, in a random state of the world; of either family, or
/// both.
pub(crate) fn world(random: &mut Random) -> Changed {
    let mut changed = Changed::default();
    let families = |random: &mut Random| match random.below(4) {
        0 => vec![Family::V4],
        1 => vec![Family::V6],
        2 => vec![Family::V6, Family::V4],
        _ => BOTH.to_vec(),
    };
    let each = |random: &mut Random, network: [u8; 3], range: u64| -> Vec<String> {
        let [a, b, c] = network;
        let of = families(random);
        of.into_iter().map(|family| ip(family, [a, b, c, random.below(range) as u8]).to_string()).collect()
    };
    for n in 0..5u8 {
        let key = format!("ns/s{n}");
        let service = (random.below(4) > 0).then(|| {
            let outside = [each(random, [198, 51, 100], 3), each(random, [10, 43, 0], 4)].concat();
            let mut spec = json!({
                "clusterIPs": each(random, [10, 43, 0], 4),
                "type": "LoadBalancer",
                "ports": [{"port": 80, "nodePort": 30_000 + random.below(3)}],
                "externalIPs": outside,
            });
            for field in ["internalTrafficPolicy", "externalTrafficPolicy"] {
                spec[field] = ["Cluster", "Local"][random.below(2) as usize].into();
            }
            if random.below(3) == 0 {
                spec["sessionAffinity"] = "ClientIP".into();
                spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10 + random.below(2)}});
            }
            if random.below(3) == 0 {
                let ranges = families(random).into_iter().map(|family| told(family, "203.0.113.0/24"));
                spec["loadBalancerSourceRanges"] = ranges.collect();
            }
            let ingress = each(random, [198, 51, 100], 3).into_iter().map(|ip| json!({"ip": ip}));
            let status = json!({"loadBalancer": {"ingress": ingress.collect::<Value>()}});
            let metadata = json!({"namespace": "ns", "name": format!("s{n}")});
            Arc::new(
                serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
                    .unwrap(),
            )
        });
        changed.services.push((key.clone(), None, service));
        let slice = (random.below(4) > 0).then(|| {
            let family = BOTH[random.below(2) as usize];
            let endpoints: Vec<Value> = (0..random.below(4))
                .map(|_| {
                    let node = ["node-a", "node-b"][random.below(2) as usize];
                    // A few are of the wrong family.
                    let family = if random.below(8) == 0 { family.other() } else { family };
                    let address = ip(family, [10, 42, 0, random.below(4) as u8]);
                    json!({"addresses": [address], "nodeName": node})
                })
                .collect();
            // Slices that go over to another Service, too.
            let labels = json!({"kubernetes.io/service-name": format!("s{}", random.below(5))});
            let metadata = json!({"namespace": "ns", "name": format!("slice{n}"), "labels": labels});
            let slice = json!({"metadata": metadata, "addressType": family.as_str(), "ports": [{"port": 8080}], "endpoints": endpoints});
            Arc::new(serde_json::from_value(slice).unwrap())
        });
        changed.slices.push((format!("ns/slice{n}"), None, slice));
    }
    let address =
        |random: &mut Random| ip(BOTH[random.below(2) as usize], [198, 51, 100, random.below(3) as u8]);
    let zone = (random.below(2) == 0).then(|| "east".to_owned());
    changed.nodes = Some(Nodes { addresses: [address(random)].into(), zone, ..Nodes::default() });
    changed
}

/// xorshift64*: the same from one seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// What of `next` is different; slices and Services that are the same are left out by chance only.
pub(crate) fn news(known: &Changed, next: &Changed) -> Changed {
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
        let families = [&BOTH[..1], &BOTH[1..], &BOTH[..]][seed as usize % 3];
        let config = Arc::new(config(families));
        let mut services = Services::new(config.clone());
        let mut known = world(&mut random);
        services.update(news(&Changed::default(), &known));
        services.update(Changed {
            services: known.services.clone(),
            slices: known.slices.clone(),
            nodes: known.nodes.clone(),
        });
        let mut tables = render::whole(&services.whole(), &config);
        assert_eq!(tables.len(), families.len());
        for step in 0..12 {
            let next = world(&mut random);
            let difference = services.update(news(&known, &next));
            carry_out(&mut tables, &difference, &config);
            assert_eq!(tables, render::whole(&services.whole(), &config), "seed {seed}, step {step}");
            let mut fresh = Services::new(config.clone());
            fresh.update(Changed {
                services: next.services.clone(),
                slices: next.slices.clone(),
                nodes: next.nodes.clone(),
            });
            assert_eq!(shape(&services.whole()), shape(&fresh.whole()), "seed {seed}, step {step}");
            for family in BOTH {
                assert_eq!(services.without_local(family), fresh.without_local(family));
            }
            assert_eq!(services.update(news(&next, &next)).after, Part::default(), "nothing is different");
            known = next;
        }
    }
}
