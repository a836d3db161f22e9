//! The limit of connections per client address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

type ConnectionCounts = Arc<Mutex<HashMap<IpAddr, u32>>>;

/// Counts connections by address. Addresses without a connection take no memory.
#[derive(Clone)]
pub struct AddressLimit {
    max: u32,
    counts: ConnectionCounts,
}

/// The permit of one connection, returned when dropped.
pub struct ConnectionPermit {
    held: Option<(IpAddr, ConnectionCounts)>,
}

impl AddressLimit {
    /// With 0 there is no limit.
    pub fn new(max: u32) -> Self {
        AddressLimit { max, counts: Arc::default() }
    }

    pub fn take(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let address = counted_as(address);
        if self.max == 0 || address.is_loopback() {
            return Some(ConnectionPermit { held: None });
        }
        let mut counts = self.counts.lock();
        let count = counts.entry(address).or_insert(0);
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(ConnectionPermit { held: Some((address, self.counts.clone())) })
    }
}

/// One client can use every address of its IPv6 /64, so those count as one.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some((address, counts)) = self.held.take() else {
            return;
        };
        let mut counts = counts.lock();
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
        // Shrink after a peak.
        if counts.capacity() > 1024 && counts.len() < counts.capacity() / 8 {
            counts.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_address_and_given_back() {
        let limit = AddressLimit::new(2);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = limit.take(ip("192.0.2.1")).unwrap();
        let _second = limit.take(ip("::ffff:192.0.2.1")).unwrap();
        assert!(limit.take(ip("192.0.2.1")).is_none());
        assert!(limit.take(ip("192.0.2.2")).is_some());
        drop(first);
        assert!(limit.take(ip("192.0.2.1")).is_some());
        let _v6: Vec<_> = (1..=2).map(|n| limit.take(ip(&format!("2001:db8::{n}"))).unwrap()).collect();
        assert!(limit.take(ip("2001:db8::77")).is_none(), "the same /64");
        assert!(limit.take(ip("2001:db8:0:1::77")).is_some());
        let many: Vec<_> = (0..50).map(|_| limit.take(ip("127.0.0.1"))).collect();
        assert!(many.iter().all(Option::is_some));
        assert!(AddressLimit::new(0).take(ip("192.0.2.1")).is_some());
    }

    #[test]
    fn nobody_connected_takes_no_memory() {
        let limit = AddressLimit::new(1);
        let held: Vec<_> = (0..5000u32).map(|n| limit.take(IpAddr::V4(n.into()))).collect();
        drop(held);
        assert!(limit.counts.lock().is_empty());
        assert!(limit.counts.lock().capacity() <= 1024);
    }
}
