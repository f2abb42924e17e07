# A job of four times its budget, from inside: an ordinary R, in which ream.memory() is called.
source(file.path(Sys.getenv("REAM_TEST_SCRIPTS"), "common.R"))
before <- values(8)
# A switch that was moved before does not leave vectors out.
tiny := 1
budget <- 128
ream.memory(paste0(budget, "M"), store = scratch)
status <- ream.status()
stopifnot(status$session, status$budget == budget * MiB, identical(ream.memory(), budget * MiB))
peak <- function() {
  line <- grep("^VmRSS", readLines("/proc/self/status"), value = TRUE)
  as.numeric(gsub("[^0-9]", "", line)) / 1024
}
least <- peak()
most <- 0
parts <- vector("list", 16)
for (i in seq_along(parts)) {
  parts[[i]] <- values(32, i)
  most <- max(most, peak())
}
stopifnot(ream.status()$stored > budget * MiB, ream.status()$paging)
for (round in 1:2) {
  for (i in rev(seq_along(parts))) {
    stopifnot(sum(parts[[i]]) == sum(values(32, i)))
    most <- max(most, peak())
  }
}
parts[[3]][5] <- -1
stopifnot(parts[[3]][5] == -1, parts[[3]][6] == values(32, 3)[6], identical(before, values(8)))
found <- ream.list()
stopifnot(sum(grepl("parts[[", found$name, fixed = TRUE)) == 16, sum(found$stored * found$size) > budget * MiB)
# 512 MiB would not fit in what the watcher may be late by.
if (most > least + budget + 160) stop("had ", most, " MiB, ", least, " of them at the beginning")
ream.memory("256M")
stopifnot(ream.memory() == 256 * MiB)
sums <- parallel::mclapply(1:2, function(i) sum(parts[[i]]), mc.cores = 2)
stopifnot(identical(unlist(sums), c(sum(values(32, 1)), sum(values(32, 2)))))
rm(parts)
invisible(gc())
stopifnot(ream.status()$stored < budget * MiB)
cat("ok\n")
