//! Limited numbers of connections: of all, and of each address or client.

use crate::leases::lock;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of a limited number, as long as it lives.
pub(crate) struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    pub(crate) fn take(count: &'a AtomicUsize, most: usize) -> Option<Place<'a>> {
        let fits = |count: usize| (count < most).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok().map(|_| Place(count))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts of those who have any, each with the same limit.
pub(crate) struct Crowd<K: Eq + Hash + Copy> {
    most: usize,
    counts: Mutex<HashMap<K, usize>>,
}

/// One of somebody's limited number, as long as it lives.
pub(crate) struct Member<'a, K: Eq + Hash + Copy> {
    crowd: &'a Crowd<K>,
    who: K,
}

impl<K: Eq + Hash + Copy> Crowd<K> {
    pub(crate) fn new(most: usize) -> Crowd<K> {
        Crowd { most, counts: Mutex::default() }
    }

    /// One more; `None` when there are too many.
    pub(crate) fn enter(&self, who: K) -> Option<Member<'_, K>> {
        let mut counts = lock(&self.counts);
        let count = counts.entry(who).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Member { crowd: self, who })
    }
}

impl<K: Eq + Hash + Copy> Drop for Member<'_, K> {
    fn drop(&mut self) {
        let mut counts = lock(&self.crowd.counts);
        let left = counts.get_mut(&self.who).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            counts.remove(&self.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_too_many_takes_nothing_from_others() {
        let crowd = Crowd::new(2);
        let first = crowd.enter(1);
        let second = crowd.enter(1);
        assert!(first.is_some() && second.is_some() && crowd.enter(1).is_none());
        let other = crowd.enter(2);
        assert!(other.is_some());
        drop(first);
        assert!(crowd.enter(1).is_some());
        drop((second, other));
        assert!(lock(&crowd.counts).is_empty());
        let all = AtomicUsize::new(0);
        let place = Place::take(&all, 1);
        assert!(place.is_some() && Place::take(&all, 1).is_none());
        drop(place);
        assert!(Place::take(&all, 1).is_some());
    }
}
