//! How many connections an address may have at once.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

type Counts = Arc<Mutex<HashMap<IpAddr, u32>>>;

/// Counts connections by address. Only addresses with a connection take memory.
#[derive(Clone)]
pub struct PerAddress {
    most: u32,
    counts: Counts,
}

/// One connection's place, given back when dropped.
pub struct Place {
    held: Option<(IpAddr, Counts)>,
}

impl PerAddress {
    /// With 0, everybody has a place.
    pub fn new(most: u32) -> Self {
        PerAddress { most, counts: Arc::default() }
    }

    pub fn take(&self, address: IpAddr) -> Option<Place> {
        let address = counted_as(address);
        if self.most == 0 || address.is_loopback() {
            return Some(Place { held: None });
        }
        let mut counts = self.counts.lock();
        let count = counts.entry(address).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { held: Some((address, self.counts.clone())) })
    }
}

/// A household has one IPv4 address, or a /64 of IPv6 from which it may take as many as it likes.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

impl Drop for Place {
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
        // Room made for a crowd is given back when it has left.
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
        let places = PerAddress::new(2);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = places.take(ip("192.0.2.1")).unwrap();
        let _second = places.take(ip("::ffff:192.0.2.1")).unwrap();
        assert!(places.take(ip("192.0.2.1")).is_none());
        assert!(places.take(ip("192.0.2.2")).is_some());
        drop(first);
        assert!(places.take(ip("192.0.2.1")).is_some());
        let _v6: Vec<_> = (1..=2).map(|n| places.take(ip(&format!("2001:db8::{n}"))).unwrap()).collect();
        assert!(places.take(ip("2001:db8::77")).is_none(), "the same /64");
        assert!(places.take(ip("2001:db8:0:1::77")).is_some());
        let many: Vec<_> = (0..50).map(|_| places.take(ip("127.0.0.1"))).collect();
        assert!(many.iter().all(Option::is_some));
        assert!(PerAddress::new(0).take(ip("192.0.2.1")).is_some());
    }

    #[test]
    fn nobody_connected_takes_no_memory() {
        let places = PerAddress::new(1);
        let held: Vec<_> = (0..5000u32).map(|n| places.take(IpAddr::V4(n.into()))).collect();
        drop(held);
        assert!(places.counts.lock().is_empty());
        assert!(places.counts.lock().capacity() <= 1024);
    }
}
