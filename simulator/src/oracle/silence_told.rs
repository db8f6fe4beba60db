//! **silence-told**: while a node's disk holds its supervisor up, the statistics of its rank say that
//! they wait.

use crate::request::Life;
use crate::world::World;

impl World {
    /// Checks what a rank says whose disk has not answered for longer than it may.
    pub(crate) fn check_silence_told(&mut self, life: Life, is_silent: bool) {
        let now = self.time(life.rank);
        let node = self.ranks[life.rank as usize].node.as_ref();
        let says_nothing = |stats: serde_json::Value| stats["waits-for"].is_null();
        if is_silent && node.is_some_and(|node| says_nothing(node.stats(now))) {
            let seen = format!("rank {} does not say that its disk does not answer", life.rank);
            self.violate("silence-told", seen);
        }
    }
}
