# where: ^\./compaction_test$
# unless: ^run_test 
/^echo "-*"$/{
N
/\necho "running on-fault-limit"$/i\
echo "---------------------"\
echo "running demotion_gate"\
echo "---------------------"\
./demotion_gate\
ret_val=$?\
if [ $ret_val -eq 0 ]; then\
	echo "[PASS]"\
elif [ $ret_val -eq $ksft_skip ]; then\
	echo "[SKIP]"\
	exitcode=$ksft_skip\
else\
	echo "[FAIL]"\
	exitcode=1\
fi\

P
D
}
