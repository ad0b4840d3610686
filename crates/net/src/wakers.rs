use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Tasks that wait on one stream: reader and writer may be two, and others wait for its opening.
///
/// Events that matter to all (a join, the end of the opening) are polled with the [common
/// waker](Self::waker), so that whichever task polled last, the event wakes all of them. A task is
/// woken once, and must register again at its next poll, as usual.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Arc<CommonWaker>);

#[derive(Debug, Default)]
struct CommonWaker(Mutex<WakerSet>);

#[derive(Debug, Default)]
struct WakerSet {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Bounded by the waiting tasks: each occurs once, and all are removed when they are woken.
    others: Vec<Waker>,
}

impl Wakers {
    /// Registers the task that reads.
    pub(crate) fn reader(&self, waker: &Waker) {
        self.0.change(|set| note(&mut set.reader, waker));
    }

    /// Registers the task that writes.
    pub(crate) fn writer(&self, waker: &Waker) {
        self.0.change(|set| note(&mut set.writer, waker));
    }

    /// Registers a task that neither reads nor writes.
    pub(crate) fn other(&self, waker: &Waker) {
        self.0.change(|set| {
            if !set.others.iter().any(|noted| noted.will_wake(waker)) {
                set.others.push(waker.clone());
            }
        });
    }

    /// Returns a waker for all tasks registered when it wakes.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }
}

impl CommonWaker {
    fn change<T>(&self, change: impl FnOnce(&mut WakerSet) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for CommonWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Woken after the lock is released: a waker is foreign code, and may poll at once.
        let set = self.change(std::mem::take);
        let both = [set.reader, set.writer].into_iter().flatten();
        both.chain(set.others).for_each(Waker::wake);
    }
}

fn note(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(noted) => noted.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counter() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn one_event_wakes_both_tasks() {
        let wakers = Wakers::default();
        let ((reads, reader), (writes, writer)) = (counter(), counter());
        wakers.reader(&reader);
        let waker = wakers.waker();
        wakers.writer(&writer);
        waker.wake_by_ref();
        assert_eq!((reads.0.load(Ordering::Relaxed), writes.0.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn all_other_tasks_are_woken_once() {
        let wakers = Wakers::default();
        let ((ones, one), (twos, two)) = (counter(), counter());
        wakers.other(&one);
        wakers.other(&two);
        wakers.other(&one);
        wakers.waker().wake();
        wakers.waker().wake();
        assert_eq!((ones.0.load(Ordering::Relaxed), twos.0.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn only_the_last_waker_of_a_side_is_woken() {
        let wakers = Wakers::default();
        let ((before, earlier), (after, later)) = (counter(), counter());
        wakers.reader(&earlier);
        wakers.reader(&later);
        let waker = wakers.waker();
        waker.wake_by_ref();
        waker.wake();
        assert_eq!((before.0.load(Ordering::Relaxed), after.0.load(Ordering::Relaxed)), (0, 1));
    }
}
