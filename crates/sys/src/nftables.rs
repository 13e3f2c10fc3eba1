//! nftables: tables, chains, sets, maps and rules over netlink.
